// Numbers to work on, and what is counted.
#ifndef TESTS_BENCH_BENCH_DATA_H_
#define TESTS_BENCH_BENCH_DATA_H_

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "hwy/aligned_allocator.h"

namespace reprise {

inline std::vector<float> RandomFloats(int64_t n, float lowest = 0.01f,
                                       float highest = 1) {
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> uniform(lowest, highest);
  std::vector<float> values(n);
  for (float& value : values) value = uniform(generator);
  return values;
}

// Aligned, as a slot is.
inline hwy::AlignedFreeUniquePtr<float[]> StateOf(int64_t n, float value) {
  auto state = hwy::AllocateAligned<float>(n);
  std::fill_n(state.get(), n, value);
  return state;
}

// FLOP/s counts a multiplication and an addition as two, bytes/s what must come
// from memory at least once.
inline void SetRates(benchmark::State& state, double flops, double bytes) {
  using benchmark::Counter;
  state.counters["FLOP/s"] = Counter(flops, Counter::kIsIterationInvariantRate);
  state.counters["bytes/s"] = Counter(bytes, Counter::kIsIterationInvariantRate,
                                      Counter::OneK::kIs1024);
}

}  // namespace reprise

#endif  // TESTS_BENCH_BENCH_DATA_H_
