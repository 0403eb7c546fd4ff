// Sampling allocates nothing. The whole executable counts its allocations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#include "engine/sampler.h"

namespace {
int64_t allocations = 0;
}  // namespace

// Not inlined: GCC would take malloc and delete for a mismatched pair.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t size,
                                     const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace reprise {
namespace {

TEST(SamplerAllocationTest, SamplingAllocatesNothing) {
  constexpr int kVocab = 20000;
  std::vector<float> logits(kVocab);
  for (int i = 0; i < kVocab; ++i) logits[i] = 5 * std::sin(i * 0.7f);
  std::vector<float> row = logits;
  Sampler sampler(kVocab);
  SamplerMemory memory;
  SamplingParams params;
  params.top_k = 5000;
  params.typical_p = 0.9f;
  params.top_p = 0.9f;
  params.min_p = 0.01f;
  params.repetition_penalty = 1.1f;
  params.penalty_last_n = 64;
  GrowWindow(params, memory);
  for (int i = 0; i < 100; ++i) RememberToken(i, i, 1, memory);
  SampleOptions options;
  options.logprob = true;
  const int64_t before = allocations;
  for (int i = 0; i < 10; ++i) {
    std::copy(logits.begin(), logits.end(), row.begin());
    sampler.Sample(row, params, options, 100, memory);
  }
  EXPECT_EQ(allocations, before);
}

}  // namespace
}  // namespace reprise
