// Choosing a token from the logits of a common vocabulary, on one core.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <vector>

#include "engine/sampler.h"

namespace reprise {
namespace {

constexpr int64_t kVocabulary = 50257;

// What trained models say has a few likely tokens and a long tail: normally
// distributed logits of this deviation leave some hundred tokens to a top-p of
// 0.9.
std::vector<float> Logits(float deviation) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> logits(kVocabulary);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

void BM_Sample(benchmark::State& state, const SamplingParams& params,
               const SampleOptions& options = {}) {
  std::vector<float> logits = Logits(/*deviation=*/3);
  Sampler sampler(kVocabulary);
  SamplerMemory memory;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        sampler.Sample(logits, params, options, /*position=*/0, memory));
  }
}
BENCHMARK_CAPTURE(BM_Sample, greedy, {.temperature = 0});
BENCHMARK_CAPTURE(BM_Sample, plain, {});
BENCHMARK_CAPTURE(BM_Sample, top_k_40, {.top_k = 40});
BENCHMARK_CAPTURE(BM_Sample, top_p_09, {.top_p = 0.9f});
BENCHMARK_CAPTURE(BM_Sample, top_k_40_top_p_09, {.top_k = 40, .top_p = 0.9f});
BENCHMARK_CAPTURE(BM_Sample, min_p_005, {.min_p = 0.05f});
BENCHMARK_CAPTURE(BM_Sample, typical_p_09, {.typical_p = 0.9f});
BENCHMARK_CAPTURE(BM_Sample, greedy_logprobs, {.temperature = 0},
                  {.top_logprobs = 5, .logprob = true});

}  // namespace
}  // namespace reprise

BENCHMARK_MAIN();
