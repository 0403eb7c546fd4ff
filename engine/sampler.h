// Chooses the next token from a row of logits.
//
// Order: logit bias, penalties, temperature, then top-k, typical-p, top-p and
// min-p each on what the one before left, then a draw. Randomness is a counter-based
// generator (Philox 4x32-10, Salmon et al. 2011) keyed by the seed; its counter
// lives in the session, so a seed means the same in any batch and after any
// resume.
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

namespace reprise {

// Defaults change nothing: they sample from softmax(logits).
struct SamplingParams {
  float temperature = 1;     // 0..2; 0 is greedy
  int32_t top_k = 0;         // 0 = off, else 1..vocabulary
  float top_p = 1;           // (0, 1]
  float min_p = 0;           // [0, 1)
  float typical_p = 1;       // (0, 1]
  float repetition_penalty = 1;  // (0, 10]
  float presence_penalty = 0;    // -2..2
  float frequency_penalty = 0;   // -2..2
  float penalty_decay = 1;       // (0, 1], per token of distance
  std::optional<int32_t> penalty_last_n;  // 0..65536; none = whole session
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
  std::vector<TokenLogprob> top;  // most likely first, as many as asked for
};

// What one draw needs beside the logits and the session's memory.
struct SampleOptions {
  int32_t top_logprobs = 0;  // 0..20
  bool logprob = false;      // fill SampledToken::logprob (and top)
  std::span<const int32_t> banned;  // never chosen (end of text before
                                    // min_new_tokens, say)
};

// Scratch for a vocabulary; one per thread that samples.
class Sampler {
 public:
  explicit Sampler(int64_t vocab_size);

  // Chooses a token. `logits` is overwritten. Advances `memory.draws` by one
  // unless greedy, and nothing else: call RememberToken for every token that
  // joins the session. `position` is that of the token being chosen. Ties go to
  // the lower id. Not-finite logits are treated as -infinity; if none is left,
  // token 0 is returned with log-probability -infinity.
  SampledToken Sample(std::span<float> logits, const SamplingParams& params,
                      const SampleOptions& options, int64_t position,
                      SamplerMemory& memory);

 private:
  struct Candidate {
    float logit;
    int32_t token;
  };
  std::vector<Candidate> candidates_;  // [vocab]
  std::vector<float> probabilities_;   // [vocab]
};

// Records that `token` stands at `position` of the session, prompt or output.
// `decay` is the request's penalty_decay.
void RememberToken(int32_t token, int64_t position, float decay,
                   SamplerMemory& memory);

// Lets memory.window hold at least the request's penalty_last_n from now on.
// Tokens from before the first request that asked are not in it.
void GrowWindow(const SamplingParams& params, SamplerMemory& memory);

// log softmax(logits)[token] and the `top` most likely tokens.
SampledToken ScoreToken(std::span<const float> logits, int32_t token,
                        int32_t top);

}  // namespace reprise

#endif  // ENGINE_SAMPLER_H_
