// The recurrences and softmax attention: what one session's state and its next
// rows cost in one layer, on one core.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "engine/kernels/attention_kernels.h"
#include "engine/kernels/decay_kernels.h"
#include "engine/kernels/delta_kernels.h"
#include "engine/kernels/selective_scan.h"
#include "engine/kernels/state_kernels.h"
#include "tests/bench/bench_data.h"

namespace reprise {
namespace {

constexpr int64_t kHeads = 16;

// A row of one session, or a tile.
enum class Form { kRecurrent, kChunk };

int64_t RowsOf(Form form) { return form == Form::kChunk ? kTileRows : 1; }

// Operations and bytes of `kHeads` heads: q S and the update of S; in a tile
// also the lower triangles of q k^T and of its product with v, `triangles`
// pairs of them. S is read and written once.
void SetStateRates(benchmark::State& state, int64_t rows, int64_t key_dim,
                   int64_t value_dim, int64_t products, int64_t triangles) {
  const auto square = static_cast<double>(key_dim * value_dim);
  const double triangle =
      rows > 1 ? static_cast<double>(rows * (rows + 1)) / 2 : 0;
  const auto width = static_cast<double>(key_dim + value_dim);
  const double flops = 2.0 * static_cast<double>(products * rows) * square +
                       2.0 * static_cast<double>(triangles) * triangle * width;
  const double bytes = sizeof(float) * (2.0 * square + 2.0 * rows * width);
  SetRates(state, kHeads * flops, kHeads * bytes);
}

enum class Weighting { kPlain, kNormalised, kPerHead, kPerChannel };

void BM_Decay(benchmark::State& state, Form form, Weighting weighting) {
  const int64_t rows = RowsOf(form);
  const int64_t dim = state.range(0);
  const int64_t width = kHeads * dim;
  const auto q = RandomFloats(rows * width);
  // Keys so small that the state stays finite for ever.
  const std::vector<float> k(rows * width, 1e-12f);
  const auto v = RandomFloats(rows * width);
  // So near to 1 that no state fades away.
  const std::vector<float> w(rows * width, 0.9999999f);
  std::vector<float> o(rows * width);
  const auto s = StateOf(width * dim, 0.5f);
  const auto z = StateOf(width, 0.5f);
  DecayArgs args = {.q = q.data(),
                    .k = k.data(),
                    .v = v.data(),
                    .o = o.data(),
                    .q_stride = width,
                    .k_stride = width,
                    .v_stride = width,
                    .o_stride = width,
                    .rows = rows,
                    .last_head = kHeads,
                    .key_dim = dim,
                    .value_dim = dim,
                    .s = s.get()};
  if (weighting == Weighting::kNormalised) {
    args.normalize = true;
    args.z = z.get();
  } else if (weighting != Weighting::kPlain) {
    const bool per_head = weighting == Weighting::kPerHead;
    args.decay = per_head ? Decay::kPerHead : Decay::kPerChannel;
    args.w = w.data();
    args.w_stride = per_head ? kHeads : width;
  }
  for (auto _ : state) {
    form == Form::kChunk ? DecayChunk(args) : DecayRecurrent(args);
    benchmark::ClobberMemory();
  }
  SetStateRates(state, rows, dim, dim, /*products=*/2, /*triangles=*/1);
}
BENCHMARK_CAPTURE(BM_Decay, recurrent, Form::kRecurrent, Weighting::kPlain)
    ->ArgName("dim")
    ->Arg(32)
    ->Arg(64)
    ->Arg(128);
BENCHMARK_CAPTURE(BM_Decay, recurrent_normalised, Form::kRecurrent,
                  Weighting::kNormalised)
    ->ArgName("dim")
    ->Arg(64);
BENCHMARK_CAPTURE(BM_Decay, recurrent_per_head, Form::kRecurrent,
                  Weighting::kPerHead)
    ->ArgName("dim")
    ->Arg(128);
BENCHMARK_CAPTURE(BM_Decay, recurrent_per_channel, Form::kRecurrent,
                  Weighting::kPerChannel)
    ->ArgName("dim")
    ->Arg(64);
BENCHMARK_CAPTURE(BM_Decay, chunk, Form::kChunk, Weighting::kPlain)
    ->ArgName("dim")
    ->Arg(32)
    ->Arg(64)
    ->Arg(128);
BENCHMARK_CAPTURE(BM_Decay, chunk_normalised, Form::kChunk,
                  Weighting::kNormalised)
    ->ArgName("dim")
    ->Arg(64);
BENCHMARK_CAPTURE(BM_Decay, chunk_per_head, Form::kChunk, Weighting::kPerHead)
    ->ArgName("dim")
    ->Arg(128);
BENCHMARK_CAPTURE(BM_Decay, chunk_per_channel, Form::kChunk,
                  Weighting::kPerChannel)
    ->ArgName("dim")
    ->Arg(64);

// The (gated) delta rule, or RWKV-7's diagonal plus low rank.
void BM_Delta(benchmark::State& state, Form form, bool low_rank) {
  const int64_t rows = RowsOf(form);
  const int64_t dim = state.range(0);
  const int64_t width = kHeads * dim;
  const auto q = RandomFloats(rows * width);
  // Small enough for the state to stay what it is.
  const std::vector<float> k(rows * width, 1e-9f);
  const auto v = RandomFloats(rows * width);
  const std::vector<float> decay(rows * width, 0.9999999f);
  std::vector<float> o(rows * width);
  const auto s = StateOf(width * dim, 0.5f);
  DeltaArgs args = {.q = {q.data(), width},
                    .k = {k.data(), width},
                    .v = {v.data(), width},
                    .decay = {decay.data(), low_rank ? width : kHeads},
                    .beta = {q.data(), kHeads},
                    .a = {},
                    .b = {},
                    .o = o.data(),
                    .o_stride = width,
                    .rows = rows,
                    .last_head = kHeads,
                    .key_dim = dim,
                    .value_dim = dim,
                    .s = s.get()};
  if (low_rank) {
    args.beta = {};
    args.a = args.b = args.k;
  }
  for (auto _ : state) {
    form == Form::kChunk ? DeltaChunk(args) : DeltaRecurrent(args);
    benchmark::ClobberMemory();
  }
  // Also what the state holds under a key, and the triangular system.
  SetStateRates(state, rows, dim, dim, /*products=*/low_rank ? 4 : 3,
                /*triangles=*/low_rank ? 4 : 2);
}
BENCHMARK_CAPTURE(BM_Delta, recurrent, Form::kRecurrent, false)
    ->ArgName("dim")
    ->Arg(64)
    ->Arg(128)
    ->Arg(256);
BENCHMARK_CAPTURE(BM_Delta, recurrent_rwkv7, Form::kRecurrent, true)
    ->ArgName("dim")
    ->Arg(64);
BENCHMARK_CAPTURE(BM_Delta, chunk, Form::kChunk, false)
    ->ArgName("dim")
    ->Arg(64)
    ->Arg(128)
    ->Arg(256);
BENCHMARK_CAPTURE(BM_Delta, chunk_rwkv7, Form::kChunk, true)
    ->ArgName("dim")
    ->Arg(64);

// One token of each of 64 sessions with heads of [key_dim, value_dim], whose
// states together are larger than the caches: how fast they come and go.
constexpr int64_t kSessions = 64;

void SetSessionRates(benchmark::State& state, int64_t products) {
  const auto numbers =
      static_cast<double>(kSessions * kHeads * state.range(0) * state.range(1));
  SetRates(state, 2 * static_cast<double>(products) * numbers,
           2 * sizeof(float) * numbers);
}

void BM_DecaySessions(benchmark::State& state) {
  const int64_t key_dim = state.range(0);
  const int64_t value_dim = state.range(1);
  const auto q = RandomFloats(kHeads * key_dim);
  const std::vector<float> k(kHeads * key_dim, 1e-12f);
  const auto v = RandomFloats(kHeads * value_dim);
  const std::vector<float> w(kHeads, 0.9999999f);
  std::vector<float> o(kHeads * value_dim);
  const int64_t size = kHeads * key_dim * value_dim;
  const auto s = StateOf(kSessions * size, 0.5f);
  DecayArgs args = {.q = q.data(),
                    .k = k.data(),
                    .v = v.data(),
                    .o = o.data(),
                    .rows = 1,
                    .last_head = kHeads,
                    .key_dim = key_dim,
                    .value_dim = value_dim,
                    .decay = Decay::kPerHead,
                    .w = w.data()};
  for (auto _ : state) {
    for (int64_t i = 0; i < kSessions; ++i) {
      args.s = s.get() + i * size;
      DecayRecurrent(args);
    }
    benchmark::ClobberMemory();
  }
  SetSessionRates(state, /*products=*/2);
}
BENCHMARK(BM_DecaySessions)
    ->ArgNames({"key_dim", "value_dim"})
    ->Args({128, 64})
    ->Args({64, 64});

void BM_DeltaSessions(benchmark::State& state, bool low_rank) {
  const int64_t key_dim = state.range(0);
  const int64_t value_dim = state.range(1);
  const auto q = RandomFloats(kHeads * key_dim);
  const std::vector<float> k(kHeads * key_dim, 1e-9f);
  const auto v = RandomFloats(kHeads * value_dim);
  const std::vector<float> decay(kHeads * key_dim, 0.9999999f);
  std::vector<float> o(kHeads * value_dim);
  const int64_t size = kHeads * key_dim * value_dim;
  const auto s = StateOf(kSessions * size, 0.5f);
  DeltaArgs args = {.q = {q.data()},
                    .k = {k.data()},
                    .v = {v.data()},
                    .decay = {decay.data()},
                    .beta = {q.data()},
                    .a = {},
                    .b = {},
                    .o = o.data(),
                    .rows = 1,
                    .last_head = kHeads,
                    .key_dim = key_dim,
                    .value_dim = value_dim};
  if (low_rank) {
    args.beta = {};
    args.a = args.b = args.k;
  }
  for (auto _ : state) {
    for (int64_t i = 0; i < kSessions; ++i) {
      args.s = s.get() + i * size;
      DeltaRecurrent(args);
    }
    benchmark::ClobberMemory();
  }
  SetSessionRates(state, /*products=*/low_rank ? 4 : 3);
}
BENCHMARK_CAPTURE(BM_DeltaSessions, gated, false)
    ->ArgNames({"key_dim", "value_dim"})
    ->Args({128, 128})
    ->Args({128, 256});
BENCHMARK_CAPTURE(BM_DeltaSessions, rwkv7, true)
    ->ArgNames({"key_dim", "value_dim"})
    ->Args({64, 64});

// Mamba's, of the width of mamba-130m.
void BM_SelectiveScan(benchmark::State& state) {
  constexpr int64_t kChannels = 1536;
  constexpr int64_t kStateSize = 16;
  const int64_t rows = state.range(0);
  const auto x = RandomFloats(rows * kChannels);
  const auto dt = RandomFloats(rows * kChannels, 0.001f, 0.1f);
  const auto bc = RandomFloats(rows * 2 * kStateSize);
  const auto a = RandomFloats(kChannels * kStateSize, -16, -1);
  const auto d = RandomFloats(kChannels);
  std::vector<float> y(rows * kChannels);
  const auto h = StateOf(kChannels * kStateSize, 0.5f);
  const SelectiveScanArgs args = {.x = x.data(),
                                  .dt = dt.data(),
                                  .b = bc.data(),
                                  .c = bc.data() + kStateSize,
                                  .y = y.data(),
                                  .x_stride = kChannels,
                                  .dt_stride = kChannels,
                                  .bc_stride = 2 * kStateSize,
                                  .y_stride = kChannels,
                                  .rows = rows,
                                  .channels = kChannels,
                                  .state_size = kStateSize,
                                  .a = a.data(),
                                  .d = d.data(),
                                  .h = h.get()};
  for (auto _ : state) {
    SelectiveScan(args);
    benchmark::ClobberMemory();
  }
  // An exponential counts as one.
  const auto numbers = static_cast<double>(kChannels * kStateSize);
  SetRates(state, 7 * numbers * static_cast<double>(rows),
           sizeof(float) * (3 * numbers + 3.0 * rows * kChannels));
}
BENCHMARK(BM_SelectiveScan)->ArgName("rows")->Arg(1)->Arg(64);

// One token that looks back on `context` others: four queries of 256 to a key,
// as in Qwen3.5. Rows of keys and values are those of all heads, `kv_heads`
// times as wide as one.
void BM_AttentionDecode(benchmark::State& state) {
  constexpr int64_t kQueries = 4;
  constexpr int64_t kDim = 256;
  const int64_t context = state.range(0);
  const int64_t stride = state.range(1) * kDim;
  const auto q = RandomFloats(kQueries * kDim, -0.05f, 0.05f);
  const auto keys = RandomFloats(context * stride);
  const auto values = RandomFloats(context * stride);
  std::vector<float> o(kQueries * kDim);
  const AttentionArgs args = {.q = q.data(),
                              .o = o.data(),
                              .q_stride = kQueries * kDim,
                              .o_stride = kQueries * kDim,
                              .q_head_stride = kDim,
                              .o_head_stride = kDim,
                              .heads = kQueries,
                              .head_dim = kDim,
                              .rows = 1,
                              .position = context,
                              .past = {keys.data(), values.data(), stride},
                              .past_rows = context,
                              .fresh = {keys.data(), values.data(), stride},
                              .fresh_position = context};
  for (auto _ : state) {
    Attend(args);
    benchmark::ClobberMemory();
  }
  const auto numbers = static_cast<double>(context * kDim);
  SetRates(state, 4 * kQueries * numbers, 2 * sizeof(float) * numbers);
}
BENCHMARK(BM_AttentionDecode)
    ->ArgNames({"context", "kv_heads"})
    ->Args({1024, 1})
    ->Args({16384, 1})
    ->Args({16384, 2})
    ->Args({16384, 8});

}  // namespace
}  // namespace reprise
