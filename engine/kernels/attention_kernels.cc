#include "engine/kernels/attention_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "engine/base/log.h"
#include "engine/kernels/state_kernels.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/attention_kernels.cc"
#include "hwy/foreach_target.h"  // must come first
// clang-format on
#include "engine/kernels/activation_ops.h"
#include "engine/kernels/lane_sums.h"
#include "engine/kernels/tile_ops.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reprise {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kTile = static_cast<size_t>(kTileRows);
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// A block of the past begins in one place, may go on at the ring's beginning,
// and ends among the fresh rows.
constexpr size_t kMaxRuns = 3;

// Query rows and keys whose products are summed at a time.
constexpr int kScoreBlock = 4;

// Neighbouring rows of keys and values: the columns [first, first + count) of a
// block.
struct Run {
  const float* k;
  const float* v;
  size_t stride;
  size_t first;
  size_t count;
};

// The tokens of a block that a call looks at, [first, last), and where they
// lie. Column c of the block is token start + c.
struct KeyBlock {
  int64_t start;  // a multiple of kTileRows
  int64_t first;
  int64_t last;
  Run runs[kMaxRuns];
  size_t num_runs;
};

// Some queries, how far they are, and where their results are gathered: those
// of several heads of one token (position_step 0), or of neighbouring tokens.
struct QueryRows {
  const float* q;
  size_t q_stride;
  float* o;  // sums of exp(score - max) v so far
  size_t o_stride;
  size_t count;  // at most kTile
  int64_t position;
  int64_t position_step;
  float* max;  // of each query's scores so far
  float* sum;  // of exp(score - max) so far
};

// Sets the runs of the block's tokens.
HWY_INLINE void FindRuns(const AttentionArgs& args, KeyBlock& block) {
  block.num_runs = 0;
  for (int64_t token = block.first; token < block.last;) {
    const bool past = token < args.fresh_position;
    const KeyValueRows& from = past ? args.past : args.fresh;
    const int64_t row =
        past ? token % args.past_rows : token - args.fresh_position;
    int64_t count = block.last - token;
    if (past) {
      count =
          std::min({count, args.fresh_position - token, args.past_rows - row});
    }
    block.runs[block.num_runs++] = {
        .k = from.k + row * from.stride,
        .v = from.v + row * from.stride,
        .stride = static_cast<size_t>(from.stride),
        .first = static_cast<size_t>(token - block.start),
        .count = static_cast<size_t>(count)};
    token += count;
  }
}

// Copies the block's keys and values together, into one run. Worth it for many
// queries: rows a power of two apart, as in a slot, fall on the same cache
// lines.
HWY_INLINE void Gather(size_t head_dim, float* keys, float* values,
                       KeyBlock& block) {
  size_t row = 0;
  for (size_t i = 0; i < block.num_runs; ++i) {
    const Run& run = block.runs[i];
    for (size_t r = 0; r < run.count; ++r, ++row) {
      std::copy_n(run.k + r * run.stride, head_dim, keys + row * head_dim);
      std::copy_n(run.v + r * run.stride, head_dim, values + row * head_dim);
    }
  }
  block.runs[0] = {.k = keys,
                   .v = values,
                   .stride = head_dim,
                   .first = block.runs[0].first,
                   .count = row};
  block.num_runs = 1;
}

// scores[i, j] = q_i . k_j for kRows rows and kKeys keys. A sum is one of
// vectors along the head, whose lanes are added in one order, and then of what
// is left of the head, for every number of rows and keys.
template <int kRows, int kKeys>
HWY_INLINE void ScoreBlock(const float* q, size_t q_stride, const float* k,
                           size_t k_stride, size_t head_dim, float* scores) {
  float sums[kRows][kScoreBlock] = {};
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  V sum[kRows][kScoreBlock];
  ZeroBlock<decltype(d)>(sum);
  for (; i + hn::Lanes(d) <= head_dim; i += hn::Lanes(d)) {
    V key[kKeys];
    HWY_UNROLL(4)
    for (int j = 0; j < kKeys; ++j) key[j] = hn::LoadU(d, k + j * k_stride + i);
    HWY_UNROLL(4)
    for (int row = 0; row < kRows; ++row) {
      const V query = hn::LoadU(d, q + row * q_stride + i);
      HWY_UNROLL(4)
      for (int j = 0; j < kKeys; ++j) {
        sum[row][j] = hn::MulAdd(query, key[j], sum[row][j]);
      }
    }
  }
  HWY_UNROLL(4)
  for (int row = 0; row < kRows; ++row) {
    const V(&r)[kScoreBlock] = sum[row];
    hn::StoreU(SumsOf4(d, r[0], r[1], r[2], r[3]), hn::Full128<float>(),
               sums[row]);
  }
#endif
  const hn::CappedTag<float, 1> one;
  for (int row = 0; row < kRows; ++row) {
    for (int j = 0; j < kKeys; ++j) {
      auto rest = hn::Set(one, sums[row][j]);
      for (size_t at = i; at < head_dim; ++at) {
        rest = hn::MulAdd(hn::LoadU(one, q + row * q_stride + at),
                          hn::LoadU(one, k + j * k_stride + at), rest);
      }
      hn::StoreU(rest, one, scores + row * kTile + j);
    }
  }
}

// scores = q k^T, [count, kTile], of which the columns of the run.
HWY_INLINE void Scores(const QueryRows& rows, const Run& run, size_t head_dim,
                       float* scores) {
  ForRows(0, rows.count, [&](auto count, size_t row) HWY_ATTR {
    const float* q = rows.q + row * rows.q_stride;
    float* out = scores + row * kTile + run.first;
    size_t key = 0;
    for (; key + kScoreBlock <= run.count; key += kScoreBlock) {
      ScoreBlock<count.value, kScoreBlock>(q, rows.q_stride,
                                           run.k + key * run.stride, run.stride,
                                           head_dim, out + key);
    }
    for (; key < run.count; ++key) {
      ScoreBlock<count.value, 1>(q, rows.q_stride, run.k + key * run.stride,
                                 run.stride, head_dim, out + key);
    }
  });
}

// A row of scores becomes exp(score - max) for the columns [first, last) and 0
// for the others, with the maximum of all blocks so far, to which what was
// gathered before is brought too.
HWY_INLINE void Weigh(size_t first, size_t last, size_t head_dim, float* scores,
                      float* o, float* max, float* sum) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);  // divides kTile
  std::fill(scores, scores + first, kMinusInfinity);
  std::fill(scores + last, scores + kTile, kMinusInfinity);
  auto most = hn::LoadU(d, scores);
  for (size_t c = lanes; c < kTile; c += lanes) {
    most = hn::Max(most, hn::LoadU(d, scores + c));
  }
  const float new_max = std::max(*max, hn::GetLane(hn::MaxOfLanes(d, most)));
  const auto shift = hn::Set(d, new_max);
  auto total = hn::Zero(d);
  for (size_t c = 0; c < kTile; c += lanes) {
    const auto weight =
        ExpUpToZero(d, hn::Sub(hn::LoadU(d, scores + c), shift));
    hn::StoreU(weight, d, scores + c);
    total = hn::Add(total, weight);
  }
  const float factor = std::exp(*max - new_max);  // 0 in the first block
  *sum = *sum * factor + hn::GetLane(hn::SumOfLanes(d, total));
  *max = new_max;
  if (factor == 1) return;
  ForColumns<1>(head_dim, [&](auto tag, auto, size_t c) HWY_ATTR {
    const auto scaled = hn::Mul(hn::LoadU(tag, o + c), hn::Set(tag, factor));
    hn::StoreU(scaled, tag, o + c);
  });
}

// Adds a block to the results of some queries, each of which sees at least one
// token of it.
HWY_INLINE void AddBlock(const QueryRows& rows, const KeyBlock& block,
                         int64_t window, size_t head_dim, float* scores) {
  for (size_t i = 0; i < block.num_runs; ++i) {
    Scores(rows, block.runs[i], head_dim, scores);
  }
  for (size_t row = 0; row < rows.count; ++row) {
    const int64_t position =
        rows.position + static_cast<int64_t>(row) * rows.position_step;
    const int64_t lowest = window == 0 ? 0 : position - window + 1;
    Weigh(std::max(block.first, lowest) - block.start,
          std::min(block.last, position + 1) - block.start, head_dim,
          scores + row * kTile, rows.o + row * rows.o_stride, rows.max + row,
          rows.sum + row);
  }
  ForRows(0, rows.count, [&](auto count, size_t row) HWY_ATTR {
    ForColumns<kBlockVecs>(head_dim, [&](auto d, auto vecs, size_t c) HWY_ATTR {
      using D = decltype(d);
      float* o = rows.o + row * rows.o_stride + c;
      hn::Vec<D> sum[count.value][vecs.value];
      LoadBlock<D>(o, rows.o_stride, sum);
      for (size_t i = 0; i < block.num_runs; ++i) {
        const Run& run = block.runs[i];
        MulAddBlock<D>(scores + row * kTile + run.first, kTile, run.v + c,
                       run.stride, run.count, sum);
      }
      StoreBlock<D>(sum, o, rows.o_stride);
    });
  });
}

// The block and every query of the call that sees some of it.
HWY_INLINE void AddBlockToAll(const AttentionArgs& args, const KeyBlock& block,
                              float* scores, float* max, float* sum) {
  const size_t head_dim = static_cast<size_t>(args.head_dim);
  if (args.rows == 1) {  // all heads at once
    const QueryRows rows = {.q = args.q,
                            .q_stride = static_cast<size_t>(args.q_head_stride),
                            .o = args.o,
                            .o_stride = static_cast<size_t>(args.o_head_stride),
                            .count = static_cast<size_t>(args.heads),
                            .position = args.position,
                            .position_step = 0,
                            .max = max,
                            .sum = sum};
    AddBlock(rows, block, args.window, head_dim, scores);
    return;
  }
  const int64_t first = std::max<int64_t>(block.first - args.position, 0);
  int64_t last = args.rows;
  if (args.window > 0) {
    last = std::min(last, block.last + args.window - 1 - args.position);
  }
  for (int64_t head = 0; head < args.heads; ++head) {
    const QueryRows rows = {
        .q = args.q + first * args.q_stride + head * args.q_head_stride,
        .q_stride = static_cast<size_t>(args.q_stride),
        .o = args.o + first * args.o_stride + head * args.o_head_stride,
        .o_stride = static_cast<size_t>(args.o_stride),
        .count = static_cast<size_t>(last - first),
        .position = args.position + first,
        .position_step = 1,
        .max = max + head * kTile + first,
        .sum = sum + head * kTile + first};
    AddBlock(rows, block, args.window, head_dim, scores);
  }
}

void Attend(const AttentionArgs& args) {
  const size_t head_dim = static_cast<size_t>(args.head_dim);
  HWY_ALIGN float keys[kMaxHeadDim * kTile];
  HWY_ALIGN float values[kMaxHeadDim * kTile];
  HWY_ALIGN float scores[kTile * kTile];
  float max[kMaxAttendHeads * kTile];  // [heads, rows], rows being 1 or kTile
  float sum[kMaxAttendHeads * kTile];
  const size_t row_stride = args.rows == 1 ? 1 : kTile;
  const auto each_row = [&](auto body) HWY_ATTR {
    for (int64_t head = 0; head < args.heads; ++head) {
      for (int64_t row = 0; row < args.rows; ++row) {
        body(head * row_stride + row,
             args.o + row * args.o_stride + head * args.o_head_stride);
      }
    }
  };
  each_row([&](size_t at, float* o) HWY_ATTR {
    max[at] = kMinusInfinity;
    sum[at] = 0;
    std::fill(o, o + head_dim, 0.0f);
  });
  const int64_t end = args.position + args.rows;
  const int64_t lowest =
      args.window == 0 ? 0
                       : std::max<int64_t>(args.position - args.window + 1, 0);
  for (int64_t start = lowest / kTileRows * kTileRows; start < end;
       start += kTileRows) {
    KeyBlock block;
    block.start = start;
    block.first = std::max(start, lowest);
    block.last = std::min(start + kTileRows, end);
    FindRuns(args, block);
    if (args.rows > 1) Gather(head_dim, keys, values, block);
    AddBlockToAll(args, block, scores, max, sum);
  }
  each_row([&](size_t at, float* o) HWY_ATTR {
    const float factor = 1 / sum[at];
    ForColumns<1>(head_dim, [&](auto d, auto, size_t c) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::LoadU(d, o + c), hn::Set(d, factor)), d, o + c);
    });
  });
}

void GateBySigmoid(const float* gate, int64_t n, float* x) {
  ForColumns<1>(static_cast<size_t>(n), [&](auto d, auto, size_t c) HWY_ATTR {
    const auto sigmoid = SigmoidOf(d, hn::LoadU(d, gate + c));
    hn::StoreU(hn::Mul(hn::LoadU(d, x + c), sigmoid), d, x + c);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise {

HWY_EXPORT(Attend);
HWY_EXPORT(GateBySigmoid);

void Attend(const AttentionArgs& args) {
  CHECK(args.rows >= 1 && args.rows <= kTileRows);
  CHECK(args.heads >= 1 && args.heads <= kMaxAttendHeads);
  CHECK(args.head_dim >= 1 && args.head_dim <= kMaxHeadDim);
  CHECK(args.fresh_position <= args.position);
  HWY_DYNAMIC_DISPATCH(Attend)(args);
}

void GateBySigmoid(const float* gate, int64_t n, float* x) {
  HWY_DYNAMIC_DISPATCH(GateBySigmoid)(gate, n, x);
}

}  // namespace reprise
#endif  // HWY_ONCE
