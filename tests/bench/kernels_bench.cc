// Speed of the kernels on one core: each is one operation on data that a step
// of a model would give it. Counters: FLOP/s counts a multiplication and an
// addition as two, bytes/s what must come from memory at least once.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/base/parallel.h"
#include "engine/kernels/decay_kernels.h"
#include "engine/kernels/linear.h"
#include "engine/kernels/simd_ops.h"
#include "hwy/aligned_allocator.h"

namespace reprise {
namespace {

std::vector<float> RandomFloats(int64_t n) {
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> uniform(0.01f, 1);
  std::vector<float> values(n);
  for (float& value : values) value = uniform(generator);
  return values;
}

void SetRates(benchmark::State& state, double flops, double bytes) {
  using benchmark::Counter;
  state.counters["FLOP/s"] = Counter(flops, Counter::kIsIterationInvariantRate);
  state.counters["bytes/s"] = Counter(bytes, Counter::kIsIterationInvariantRate,
                                      Counter::OneK::kIs1024);
}

// Several layers in turn, more than the caches hold of one core's share, so
// that few rows show the speed of memory, as decoding does.
void BM_Linear(benchmark::State& state, WeightType type) {
  const int64_t rows = state.range(0);
  const int64_t dim = 1024;
  const int64_t layers = 16;
  if (!ResolveWeightType(type).ok()) {
    state.SkipWithError("not on this CPU");
    return;
  }
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

// One tile or row of a layer's heads.
void RunState(benchmark::State& state, int64_t rows, bool normalize,
              void (*kernel)(const DecayArgs&)) {
  const int64_t heads = 16;
  const int64_t dim = state.range(0);
  const int64_t width = heads * dim;
  const auto q = RandomFloats(rows * width);
  // Keys and values so small that the state stays finite for ever.
  std::vector<float> k(rows * width, 1e-12f);
  const auto v = RandomFloats(rows * width);
  std::vector<float> o(rows * width);
  // Aligned, as a slot is.
  const auto s = hwy::AllocateAligned<float>(width * dim);
  std::fill_n(s.get(), width * dim, 0.5f);
  auto z = RandomFloats(width);
  const DecayArgs args = {.q = q.data(),
                          .k = k.data(),
                          .v = v.data(),
                          .o = o.data(),
                          .q_stride = width,
                          .k_stride = width,
                          .v_stride = width,
                          .o_stride = width,
                          .rows = rows,
                          .last_head = heads,
                          .key_dim = dim,
                          .value_dim = dim,
                          .normalize = normalize,
                          .s = s.get(),
                          .z = normalize ? z.data() : nullptr};
  for (auto _ : state) {
    kernel(args);
    benchmark::ClobberMemory();
  }
  // Per head: q S and k^T v; with several rows also the lower triangles of
  // q k^T and of its product with v.
  const double triangle = rows > 1 ? rows * (rows + 1) / 2.0 : 0;
  const double flops = 4.0 * rows * dim * dim + 4.0 * triangle * dim;
  const double bytes = sizeof(float) * (2.0 * dim * dim + 4.0 * rows * dim);
  SetRates(state, heads * flops, heads * bytes);
}

void BM_Recurrent(benchmark::State& state) {
  RunState(state, /*rows=*/1, /*normalize=*/false, DecayRecurrent);
}
BENCHMARK(BM_Recurrent)->ArgName("dim")->Arg(32)->Arg(64)->Arg(128);

void BM_RecurrentNormalised(benchmark::State& state) {
  RunState(state, /*rows=*/1, /*normalize=*/true, DecayRecurrent);
}
BENCHMARK(BM_RecurrentNormalised)->ArgName("dim")->Arg(64);

void BM_Chunk(benchmark::State& state) {
  RunState(state, kTileRows, /*normalize=*/false, DecayChunk);
}
BENCHMARK(BM_Chunk)->ArgName("dim")->Arg(32)->Arg(64)->Arg(128);

void BM_ChunkNormalised(benchmark::State& state) {
  RunState(state, kTileRows, /*normalize=*/true, DecayChunk);
}
BENCHMARK(BM_ChunkNormalised)->ArgName("dim")->Arg(64);

}  // namespace
}  // namespace reprise

BENCHMARK_MAIN();
