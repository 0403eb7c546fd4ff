#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/parallel.h"
#include "engine/kernels/gate_ops.h"
#include "engine/kernels/simd_ops.h"
#include "engine/philox.h"

namespace reprise {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Keeps an adjusted logit finite: infinity would mean "never", or win over
// everything.
float ToFinite(double logit) {
  constexpr double kMax = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(logit, -kMax, kMax));
}

// Exponentials are computed for so many numbers at a time.
constexpr size_t kBlock = 512;
template <class T>
using Block = std::array<T, kBlock>;

// Calls use(first, size) for every block of `size` numbers.
void ForBlocks(size_t size, auto use) {
  for (size_t first = 0; first < size; first += kBlock) {
    use(first, std::min(kBlock, size - first));
  }
}

bool Penalises(const SamplingParams& params) {
  return params.repetition_penalty != 1 || params.presence_penalty != 0 ||
         params.frequency_penalty != 0;
}

// Draws from all tokens, none of them left out before.
bool DrawsFromAll(const SamplingParams& params) {
  return params.temperature > 0 && params.top_k == 0 && params.typical_p == 1 &&
         params.top_p == 1 && params.min_p == 0;
}

// The index of the mass that `rest`, at first a share of all, falls into; the
// last one if rounding leaves something of it. It becomes what is left of it
// there. Returns -1 if there is no mass.
int64_t Pick(const auto& items, auto mass_of, double& rest) {
  int64_t chosen = -1;
  double before = 0;  // mass of the one chosen so far
  int64_t i = 0;
  for (const auto& item : items) {
    const double mass = mass_of(item);
    if (mass > 0) {
      rest -= before;
      chosen = i;
      if (rest < mass) break;
      before = mass;
    }
    ++i;
  }
  return chosen;
}

// Puts the `top` most likely tokens into `best`, the lower id first of equals.
void FindTop(std::span<const float> logits, int32_t top,
             std::vector<TokenLogprob>* best) {
  if (top <= 0) return;
  const auto limit = static_cast<size_t>(top);
  best->reserve(limit + 1);
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = logits[i];
    if (!std::isfinite(logit)) continue;
    if (best->size() == limit && !(logit > best->back().logprob)) continue;
    const auto place = std::upper_bound(
        best->begin(), best->end(), logit,
        [](float a, const TokenLogprob& b) { return a > b.logprob; });
    best->insert(place, {static_cast<int32_t>(i), logit});
    if (best->size() > limit) best->pop_back();
  }
}

}  // namespace

Sampler::Sampler(int64_t vocab_size)
    : adjusted_(static_cast<size_t>(vocab_size)),
      weights_(static_cast<size_t>(vocab_size)) {
  sums_.reserve((weights_.size() + kBlock - 1) / kBlock);
  scales_.reserve(sums_.capacity());
  candidates_.reserve(static_cast<size_t>(vocab_size));
  undecided_.reserve(static_cast<size_t>(vocab_size));
}

SampledToken Sampler::Sample(std::span<float> logits,
                             const SamplingParams& params,
                             const SampleOptions& options, int64_t position,
                             SamplerMemory& memory) {
  CHECK(logits.size() == adjusted_.size());
  const bool adjusts = !params.logit_bias.empty() || Penalises(params) ||
                       !options.banned.empty();
  const bool from_all = DrawsFromAll(params);
  if (adjusts || !from_all) {
    KeepFinite(logits.data(), std::ssize(logits), adjusted_.data());
    Adjust(params, options, position, memory);
  }
  int32_t token = -1;
  if (params.temperature == 0) {
    token = ChooseGreedily();
  } else {
    const double uniform = PhiloxUniform(params.seed, memory.draws++);
    token = from_all ? DrawFromAll(adjusts ? adjusted_ : logits,
                                   params.temperature, uniform)
                     : DrawFromSome(params, uniform);
  }
  SampledToken result;
  if (options.logprob) {
    result = ScoreToken(logits, std::max(token, 0), options.top_logprobs);
  }
  result.token = token;
  if (token < 0) {
    result.token = 0;
    result.logprob = kNever;
    result.possible = false;
  }
  return result;
}

void Sampler::Adjust(const SamplingParams& params, const SampleOptions& options,
                     int64_t position, const SamplerMemory& memory) {
  for (const auto& [token, bias] : params.logit_bias) {
    if (adjusted_[token] == kNever) continue;
    adjusted_[token] = ToFinite(double{adjusted_[token]} + bias);
  }
  if (Penalises(params)) ApplyPenalties(params, position, memory);
  for (const int32_t token : options.banned) {
    if (token >= 0 && token < std::ssize(adjusted_)) adjusted_[token] = kNever;
  }
}

void Sampler::ApplyPenalties(const SamplingParams& params, int64_t position,
                             const SamplerMemory& memory) {
  const double decay = params.penalty_decay;
  if (!params.penalty_last_n.has_value()) {
    for (const TokenOccurrence& seen : memory.occurrences) {
      const auto age = static_cast<double>(position - 1 - seen.position);
      ApplyPenalty(params, seen.token, seen.weight * std::pow(decay, age));
    }
    return;
  }
  // Adds up the weights inside the window, the newest token first; then every
  // token is penalised where it is met first and its weight taken away.
  const size_t size = memory.window.size();
  const size_t count =
      std::min(size, static_cast<size_t>(*params.penalty_last_n));
  const auto token_of_age = [&](size_t age) {
    return memory.window[(memory.window_oldest + size - 1 - age) % size];
  };
  double fade = 1;
  for (size_t age = 0; age < count; ++age) {
    weights_[token_of_age(age)] += fade;
    fade *= decay;
  }
  for (size_t age = 0; age < count; ++age) {
    const int32_t token = token_of_age(age);
    // -1 marks a token that was met already. A weight that faded to 0 is none:
    // presence still counts.
    const double weight = std::exchange(weights_[token], -1);
    if (weight >= 0) ApplyPenalty(params, token, weight);
  }
  for (size_t age = 0; age < count; ++age) weights_[token_of_age(age)] = 0;
}

void Sampler::ApplyPenalty(const SamplingParams& params, int32_t token,
                           double weight) {
  float& logit = adjusted_[token];
  if (logit == kNever) return;
  const double factor =
      std::pow(double{params.repetition_penalty}, std::min(1.0, weight));
  double value = logit > 0 ? logit / factor : logit * factor;
  value -= params.presence_penalty;
  value -= params.frequency_penalty * weight;
  logit = ToFinite(value);
}

int32_t Sampler::ChooseGreedily() const {
  const float highest = Max(adjusted_.data(), std::ssize(adjusted_));
  if (highest == kNever) return -1;
  const auto place = std::find(adjusted_.begin(), adjusted_.end(), highest);
  return static_cast<int32_t>(place - adjusted_.begin());
}

// Returns -1 if no token is possible.
int32_t Sampler::DrawFromSome(const SamplingParams& params, double uniform) {
  if (params.top_k > 0) {
    StartWithTopK(static_cast<size_t>(params.top_k));
  } else {
    StartWithAll();
  }
  if (candidates_.empty()) return -1;
  ComputeProbabilities(params.temperature);
  if (params.typical_p < 1) KeepTypical(params.typical_p);
  if (params.top_p < 1) {
    KeepFewest(params.top_p,
               [](const Candidate& candidate) { return candidate.cost; });
  }
  if (params.min_p > 0) KeepMinP(params.min_p);
  double rest = uniform * TotalProbability();
  const int64_t chosen = Pick(
      candidates_, [](const Candidate& c) { return c.probability; }, rest);
  return chosen < 0 ? -1 : candidates_[static_cast<size_t>(chosen)].token;
}

// Reads the logits once: a block's sum is relative to its own highest logit.
// Keeps the sums of blocks alone, and computes the one block again that the
// draw falls into.
int32_t Sampler::DrawFromAll(std::span<const float> logits, float temperature,
                             double uniform) {
  Block<float> terms;
  float block_highest = kNever;
  const auto compute = [&](size_t first, size_t size) {
    const float* const block = logits.data() + first;
    const auto n = static_cast<int64_t>(size);
    block_highest = HighestFinite(block, n);
    return SoftmaxTerms(block, n, block_highest, temperature, terms.data());
  };
  float highest = kNever;
  sums_.clear();
  scales_.clear();
  ForBlocks(logits.size(), [&](size_t first, size_t size) {
    sums_.push_back(compute(first, size));
    scales_.push_back(block_highest);
    highest = std::max(highest, block_highest);
  });
  if (highest == kNever) return -1;
  for (double& scale : scales_) scale = (scale - highest) / temperature;
  ExpOfNonPositive(scales_.data(), std::ssize(scales_));
  for (size_t i = 0; i < sums_.size(); ++i) sums_[i] *= scales_[i];
  double rest = uniform * std::accumulate(sums_.begin(), sums_.end(), 0.0);
  const auto itself = [](double mass) { return mass; };
  const auto block = static_cast<size_t>(Pick(sums_, itself, rest));
  const size_t first = kBlock * block;
  const size_t size = std::min(kBlock, logits.size() - first);
  compute(first, size);
  rest /= scales_[block];
  const int64_t place = Pick(std::span(terms).first(size), itself, rest);
  return static_cast<int32_t>(static_cast<int64_t>(first) + place);
}

// Both leave the negative logit as the cost.
void Sampler::StartWithAll() {
  candidates_.clear();
  for (size_t i = 0; i < adjusted_.size(); ++i) {
    if (adjusted_[i] == kNever) continue;
    candidates_.push_back(
        {.token = static_cast<int32_t>(i), .cost = -adjusted_[i]});
  }
}

// A heap of the best so far, the worst of them on top, turns nearly all tokens
// away after one comparison.
void Sampler::StartWithTopK(size_t top_k) {
  const auto better = [](const Candidate& a, const Candidate& b) {
    return std::pair(a.cost, a.token) < std::pair(b.cost, b.token);
  };
  candidates_.clear();
  for (size_t i = 0; i < adjusted_.size(); ++i) {
    if (adjusted_[i] == kNever) continue;
    const double cost = -adjusted_[i];
    if (candidates_.size() == top_k) {
      // Of equal ones the earlier stays: its id is lower.
      if (cost >= candidates_.front().cost) continue;
      std::pop_heap(candidates_.begin(), candidates_.end(), better);
      candidates_.pop_back();
    }
    candidates_.push_back({.token = static_cast<int32_t>(i), .cost = cost});
    std::push_heap(candidates_.begin(), candidates_.end(), better);
  }
  std::sort(
      candidates_.begin(), candidates_.end(),
      [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
}

void Sampler::ComputeProbabilities(float temperature) {
  double lowest = candidates_.front().cost;
  for (const Candidate& candidate : candidates_) {
    lowest = std::min(lowest, candidate.cost);
  }
  Block<double> powers;
  ForBlocks(candidates_.size(), [&](size_t first, size_t size) {
    const std::span<Candidate> block =
        std::span(candidates_).subspan(first, size);
    for (size_t i = 0; i < block.size(); ++i) {
      block[i].cost = (block[i].cost - lowest) / temperature;
      powers[i] = -block[i].cost;
    }
    ExpOfNonPositive(powers.data(), std::ssize(block));
    for (size_t i = 0; i < block.size(); ++i) block[i].probability = powers[i];
  });
}

double Sampler::TotalProbability() const {
  double total = 0;
  for (const Candidate& candidate : candidates_) {
    total += candidate.probability;
  }
  return total;
}

// Keeps the fewest candidates whose probabilities reach `share` of the total,
// those of the lowest rank (>= 0) first. Ranks are put into bins first: one bin
// holds the last one to be kept, and only that bin is sorted.
void Sampler::KeepFewest(double share, auto rank) {
  constexpr int32_t kBins = 1024;
  constexpr double kBinsPerUnit = 32;  // ranks beyond 32 share the last bin
  const auto before = [rank](const Candidate& a, const Candidate& b) {
    return std::pair(rank(a), a.token) < std::pair(rank(b), b.token);
  };
  std::array<double, kBins> mass = {};
  for (Candidate& candidate : candidates_) {
    candidate.bin = static_cast<int32_t>(
        std::min<double>(rank(candidate) * kBinsPerUnit, kBins - 1));
    mass[candidate.bin] += candidate.probability;
  }
  const double target = share * std::accumulate(mass.begin(), mass.end(), 0.0);
  double kept = 0;
  int32_t bin = 0;
  while (bin + 1 < kBins && kept + mass[bin] < target) kept += mass[bin++];
  undecided_.clear();
  for (const Candidate& candidate : candidates_) {
    if (candidate.bin == bin) undecided_.push_back(candidate);
  }
  std::sort(undecided_.begin(), undecided_.end(), before);
  // The first that reaches the target is kept too. If rounding lets none do so,
  // the whole bin is.
  const auto last = std::find_if(undecided_.begin(), undecided_.end(),
                                 [&](const Candidate& candidate) {
                                   kept += candidate.probability;
                                   return kept >= target;
                                 });
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    if (candidate.bin != bin) return candidate.bin > bin;
    return last != undecided_.end() && before(*last, candidate);
  });
}

// A token's information is its cost plus a constant, so that its distance from
// the expected information is that of its cost from the expected cost.
void Sampler::KeepTypical(double typical_p) {
  double expected = 0;
  for (const Candidate& candidate : candidates_) {
    if (candidate.probability == 0) continue;  // the cost may be infinite
    expected += candidate.probability * candidate.cost;
  }
  expected /= TotalProbability();
  KeepFewest(typical_p, [expected](const Candidate& candidate) {
    return std::abs(candidate.cost - expected);
  });
}

void Sampler::KeepMinP(double min_p) {
  double highest = 0;
  for (const Candidate& candidate : candidates_) {
    highest = std::max(highest, candidate.probability);
  }
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    return candidate.probability < min_p * highest;
  });
}

void RememberToken(int32_t token, int64_t position, float decay,
                   SamplerMemory& memory) {
  const auto place = std::lower_bound(
      memory.occurrences.begin(), memory.occurrences.end(), token,
      [](const TokenOccurrence& a, int32_t b) { return a.token < b; });
  if (place == memory.occurrences.end() || place->token != token) {
    memory.occurrences.insert(place, {token, 1, position});
  } else {
    const double faded = std::pow(
        double{decay}, static_cast<double>(position - place->position));
    place->weight = static_cast<float>(place->weight * faded + 1);
    place->position = position;
  }
  if (memory.window_limit == 0) return;
  if (std::ssize(memory.window) < memory.window_limit) {
    memory.window.push_back(token);
    return;
  }
  memory.window[memory.window_oldest] = token;
  memory.window_oldest = (memory.window_oldest + 1) % memory.window.size();
}

void GrowWindow(const SamplingParams& params, SamplerMemory& memory) {
  if (!params.penalty_last_n.has_value()) return;
  if (memory.window_limit >= *params.penalty_last_n) return;
  memory.window_limit = *params.penalty_last_n;
  // From here on it is not full, and tokens are appended.
  std::rotate(
      memory.window.begin(),
      memory.window.begin() + static_cast<std::ptrdiff_t>(memory.window_oldest),
      memory.window.end());
  memory.window_oldest = 0;
}

SampledToken ScoreToken(std::span<const float> logits, int32_t token,
                        int32_t top) {
  SampledToken result{.token = token, .logprob = kNever, .top = {}};
  const float highest = HighestFinite(logits.data(), std::ssize(logits));
  if (highest == kNever) return result;
  double total = 0;
  Block<float> terms;
  ForBlocks(logits.size(), [&](size_t first, size_t size) {
    total += SoftmaxTerms(logits.data() + first, static_cast<int64_t>(size),
                          highest, /*temperature=*/1, terms.data());
  });
  // Subtracted one after the other: their sum would lose digits.
  const double log_total = std::log(total);
  const auto logprob = [highest, log_total](float logit) {
    if (!std::isfinite(logit)) return kNever;
    return static_cast<float>(double{logit} - highest - log_total);
  };
  result.logprob = logprob(logits[token]);
  FindTop(logits, top, &result.top);
  for (TokenLogprob& entry : result.top) entry.logprob = logprob(entry.logprob);
  return result;
}

std::vector<SampledToken> ScoreTokens(MatrixView<const float> logits,
                                      std::span<const int32_t> tokens,
                                      int32_t top) {
  CHECK(logits.rows == std::ssize(tokens));
  std::vector<SampledToken> scores(tokens.size());
  ParallelFor(logits.rows, [&](int64_t row) {
    const auto i = static_cast<size_t>(row);
    scores[i] = ScoreToken(logits.RowSpan(row), tokens[i], top);
  });
  return scores;
}

}  // namespace reprise
