// Sampling allocates nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/sampler.h"
#include "tests/support/allocations.h"

namespace reprise {
namespace {

TEST(SamplerAllocationTest, SamplingAllocatesNothing) {
  constexpr int kVocab = 20000;
  std::vector<float> logits(kVocab);
  for (int i = 0; i < kVocab; ++i) logits[i] = 5 * std::sin(i * 0.7f);
  std::vector<float> row = logits;
  SamplingParams filtered;
  filtered.top_k = 5000;
  filtered.typical_p = 0.9f;
  filtered.top_p = 0.9f;
  filtered.min_p = 0.01f;
  filtered.repetition_penalty = 1.1f;
  filtered.penalty_last_n = 64;
  SamplingParams greedy;
  greedy.temperature = 0;
  SampleOptions options;
  options.logprob = true;
  for (const SamplingParams& params : {filtered, SamplingParams(), greedy}) {
    Sampler sampler(kVocab);
    SamplerMemory memory;
    GrowWindow(params, memory);
    for (int i = 0; i < 100; ++i) RememberToken(i, i, 1, memory);
    ResetAllocations();
    for (int i = 0; i < 10; ++i) {
      std::copy(logits.begin(), logits.end(), row.begin());
      sampler.Sample(row, params, options, 100, memory);
    }
    EXPECT_EQ(CountAllocations().count, 0)
        << "top_k " << params.top_k << ", temperature " << params.temperature;
  }
}

}  // namespace
}  // namespace reprise
