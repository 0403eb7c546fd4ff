// Speed of matmuls, norms and activations on one core: each is one operation on
// data that a step of a model would give it.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/parallel.h"
#include "engine/kernels/linear.h"
#include "engine/kernels/simd_ops.h"
#include "tests/bench/bench_data.h"

namespace reprise {
namespace {

// Several layers in turn, more than the caches hold of one core's share, so
// that few rows show the speed of memory, as decoding does.
void BM_Linear(benchmark::State& state, WeightType type) {
  const int64_t rows = state.range(0);
  const int64_t dim = 1024;
  const int64_t layers = 16;
  SetNumThreads(1);
  const auto weight = RandomFloats(dim * dim);
  std::vector<Linear> linears;
  for (int64_t i = 0; i < layers; ++i) {
    auto linear = Linear::Create({weight.data(), dim, dim}, {},
                                 {.type = type, .max_rows = rows});
    if (!linear.ok()) {
      state.SkipWithError(std::string(linear.status().message()).c_str());
      return;
    }
    linears.push_back(*std::move(linear));
  }
  const auto x = RandomFloats(PaddedRows(rows) * dim);
  std::vector<float> y(PaddedRows(rows) * dim);
  LinearScratch scratch;
  for (auto _ : state) {
    for (const Linear& linear : linears) {
      linear.Apply({x.data(), rows, dim}, {y.data(), rows, dim}, scratch);
    }
  }
  SetRates(state, 2.0 * layers * rows * dim * dim,
           static_cast<double>(layers * linears[0].packed_bytes()));
}
BENCHMARK_CAPTURE(BM_Linear, f32, WeightType::kF32)
    ->ArgName("rows")
    ->Arg(1)
    ->Arg(16)
    ->Arg(64)
    ->Arg(512);
BENCHMARK_CAPTURE(BM_Linear, bf16, WeightType::kBf16)
    ->ArgName("rows")
    ->Arg(1)
    ->Arg(16)
    ->Arg(64)
    ->Arg(512);

BENCHMARK_CAPTURE(BM_Linear, int8, WeightType::kInt8)
    ->ArgName("rows")
    ->Arg(1)
    ->Arg(16)
    ->Arg(64)
    ->Arg(512);

void BM_RmsNorm(benchmark::State& state) {
  const int64_t n = state.range(0);
  const auto x = RandomFloats(n);
  std::vector<float> y(n);
  for (auto _ : state) {
    RmsNorm(x.data(), x.data(), n, 1e-5f, y.data());
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  SetRates(state, 4.0 * n, 3.0 * n * sizeof(float));
}
BENCHMARK(BM_RmsNorm)->ArgName("n")->Arg(512)->Arg(2048);

void BM_SiluMultiply(benchmark::State& state) {
  const int64_t n = state.range(0);
  const auto gate = RandomFloats(n);
  const auto up = RandomFloats(n);
  std::vector<float> y(n);
  for (auto _ : state) {
    SiluMultiply(gate.data(), up.data(), n, y.data());
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  SetRates(state, 5.0 * n, 3.0 * n * sizeof(float));
}
BENCHMARK(BM_SiluMultiply)->ArgName("n")->Arg(2048)->Arg(8192);

}  // namespace
}  // namespace reprise

BENCHMARK_MAIN();
