// What the tests of the sampler share.
#ifndef TESTS_ENGINE_SAMPLER_SUPPORT_H_
#define TESTS_ENGINE_SAMPLER_SUPPORT_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "engine/sampler.h"

namespace reprise {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Normally distributed around zero, with a deviation of 2.
inline std::vector<float> RandomLogits(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// What a new sampler draws from `logits`.
inline SampledToken Sample(std::vector<float> logits,
                           const SamplingParams& params, SamplerMemory& memory,
                           const SampleOptions& options = {},
                           int64_t position = 0) {
  Sampler sampler(static_cast<int64_t>(logits.size()));
  return sampler.Sample(logits, params, options, position, memory);
}

}  // namespace reprise

#endif  // TESTS_ENGINE_SAMPLER_SUPPORT_H_
