// Chooses the next token from a row of logits.
//
// Order: logit bias, penalties, banned tokens, temperature, then top-k,
// typical-p, top-p and min-p each on what the one before left, then a draw.
//
//   bias        added to the logit; entries of one token add up
//   repetition  a positive logit is divided by r^min(1, w), another one is
//               multiplied by it (Keskar et al. 2019), where w is the token's
//               weight: its decayed count, the sum of decay^age over its
//               occurrences, the latest token of the session having age 0
//   presence    subtracted if the token occurred at all
//   frequency   frequency * w is subtracted (presence, frequency and decay are
//               those of the rwkv package; decay 1 gives the common ones)
//   top-k       the k most likely
//   typical-p   the fewest tokens that reach typical_p, those nearest to the
//               expected information first (Meister et al. 2023)
//   top-p       the fewest tokens that reach top_p, the most likely first
//               (Holtzman et al. 2020)
//   min-p       those at least min_p times as likely as the most likely one
//               (Nguyen et al. 2024)
//
// Each of these sees probabilities that add up to 1 over what is left. Equal
// ones are taken in the order of their ids, in which the draw walks over what
// is left. Its random numbers come from a counter (engine/philox.h) in the
// session and a key, the seed: the same in any batch and after any resume.
#ifndef ENGINE_SAMPLER_H_
#define ENGINE_SAMPLER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/state/snapshot.h"
#include "engine/tensor.h"

namespace reprise {

// Defaults change nothing: they sample from softmax(logits).
struct SamplingParams {
  static constexpr int32_t kMaxWindow = 65536;
  float temperature = 1;                  // 0..2; 0 is greedy
  int32_t top_k = 0;                      // 0 = off, else 1..vocabulary
  float top_p = 1;                        // (0, 1]
  float min_p = 0;                        // [0, 1)
  float typical_p = 1;                    // (0, 1]
  float repetition_penalty = 1;           // (0, 10]
  float presence_penalty = 0;             // -2..2
  float frequency_penalty = 0;            // -2..2
  float penalty_decay = 1;                // (0, 1], per token of distance
  std::optional<int32_t> penalty_last_n;  // 0..kMaxWindow; none = whole session
  std::vector<std::pair<int32_t, float>> logit_bias;  // <= 1024; -100..100
  uint64_t seed = 0;
};

// InvalidArgument, naming the field as "sampling.NAME", its value and range,
// for a value that is out of range or not a number.
absl::Status ValidateSamplingParams(const SamplingParams& params,
                                    int64_t vocab_size);

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
};

struct SampledToken {
  int32_t token = 0;
  float logprob = 0;  // under softmax(logits), as the model gave them
  // False if no token could be chosen: then `token` is 0 and means nothing.
  bool possible = true;
  std::vector<TokenLogprob> top;  // most likely first, as many as asked for
};

// What one draw needs beside the logits and the session's memory.
struct SampleOptions {
  int32_t top_logprobs = 0;              // 0..20
  bool logprob = false;                  // fill SampledToken::logprob (and top)
  std::span<const int32_t> banned = {};  // never chosen
};

// Scratch for a vocabulary; one per thread that samples.
class Sampler {
 public:
  explicit Sampler(int64_t vocab_size);

  // Chooses a token. `logits` are one for each of the vocabulary, and stay as
  // they are; `params` are valid. Advances `memory.draws` by one unless
  // greedy, and nothing else: call RememberToken for every token that joins the
  // session. `position` is that of the token being chosen. Ties go to the lower
  // id. Not-finite logits are treated as -infinity; if none is left, or the
  // rest is banned, the result is not `possible`. Takes time linear in the
  // vocabulary; allocates nothing but SampledToken::top.
  SampledToken Sample(std::span<float> logits, const SamplingParams& params,
                      const SampleOptions& options, int64_t position,
                      SamplerMemory& memory);

 private:
  struct Candidate {  // a token that may still be chosen
    int32_t token = 0;
    int32_t bin = 0;         // see KeepFewest
    double cost = 0;         // (highest logit - logit) / temperature
    double probability = 0;  // exp(-cost): not divided by the total
  };

  void Adjust(const SamplingParams& params, const SampleOptions& options,
              int64_t position, const SamplerMemory& memory);
  void ApplyPenalties(const SamplingParams&, int64_t, const SamplerMemory&);
  void ApplyPenalty(const SamplingParams& params, int32_t token, double weight);
  int32_t ChooseGreedily() const;
  int32_t DrawFromSome(const SamplingParams& params, double uniform);
  int32_t DrawFromAll(std::span<const float> logits, float t, double uniform);
  void StartWithAll();
  void StartWithTopK(size_t top_k);
  void ComputeProbabilities(float temperature);
  void KeepTypical(double typical_p);
  void KeepMinP(double min_p);
  double TotalProbability() const;
  void KeepFewest(double share, auto rank);

  std::vector<float> adjusted_;        // [vocab] finite or -infinity
  std::vector<double> weights_;        // [vocab] 0 between calls
  std::vector<double> sums_, scales_;  // of blocks of probabilities
  std::vector<Candidate> candidates_;  // up to [vocab], ascending by token
  std::vector<Candidate> undecided_;   // up to [vocab]
};

// Records that `token` stands at `position` of the session, prompt or output.
// Its weight so far fades by `decay`, penalty_decay, per token of distance.
void RememberToken(int32_t token, int64_t position, float decay,
                   SamplerMemory& memory);

// Lets memory.window hold at least the request's penalty_last_n from now on.
// Tokens from before the first request that asked are not in it.
void GrowWindow(const SamplingParams& params, SamplerMemory& memory);

// log softmax(logits)[token] and the `top` most likely tokens. Not-finite
// logits are treated as -infinity and are not among the top.
SampledToken ScoreToken(std::span<const float> logits, int32_t token,
                        int32_t top);
// ScoreToken of every row of `logits` with its token, rows in ParallelFor.
std::vector<SampledToken> ScoreTokens(MatrixView<const float> logits,
                                      std::span<const int32_t> tokens,
                                      int32_t top);

}  // namespace reprise

#endif  // ENGINE_SAMPLER_H_
