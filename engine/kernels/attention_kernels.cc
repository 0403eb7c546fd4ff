#include "engine/kernels/attention_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "engine/base/log.h"
#include "engine/kernels/state_kernels.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/attention_kernels.cc"
#include "hwy/foreach_target.h"  // must come first
// clang-format on
#include "engine/kernels/tile_ops.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reprise {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kTile = static_cast<size_t>(kTileRows);
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Highway's Exp has an error of 1 ulp and maps -infinity to 0, but NaN too.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpOf(D d, V x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
}

// The tokens of a block that a call looks at, [first, last), and what it makes
// of them. Column c of the block is token start + c.
struct KeyBlock {
  int64_t start;  // a multiple of kTileRows
  int64_t first;
  int64_t last;
  const float* keys;    // k^T, [head_dim, kTile]
  const float* values;  // [kTile, head_dim]
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

#if HWY_TARGET != HWY_SCALAR
// to[j * to_stride + i] = from[i * from_stride + j] for i, j < 4.
HWY_INLINE void Transpose4x4(const float* from, size_t from_stride, float* to,
                             size_t to_stride) {
  const hn::Full128<float> d;
  const auto a = hn::LoadU(d, from);
  const auto b = hn::LoadU(d, from + from_stride);
  const auto c = hn::LoadU(d, from + 2 * from_stride);
  const auto e = hn::LoadU(d, from + 3 * from_stride);
  const auto ab_lower = hn::InterleaveLower(d, a, b);  // a0 b0 a1 b1
  const auto ab_upper = hn::InterleaveUpper(d, a, b);
  const auto ce_lower = hn::InterleaveLower(d, c, e);
  const auto ce_upper = hn::InterleaveUpper(d, c, e);
  hn::StoreU(hn::ConcatLowerLower(d, ce_lower, ab_lower), d, to);
  hn::StoreU(hn::ConcatUpperUpper(d, ce_lower, ab_lower), d, to + to_stride);
  hn::StoreU(hn::ConcatLowerLower(d, ce_upper, ab_upper), d,
             to + 2 * to_stride);
  hn::StoreU(hn::ConcatUpperUpper(d, ce_upper, ab_upper), d,
             to + 3 * to_stride);
}
#endif

// keys[i * kTile + row] = k[row * stride + i].
HWY_INLINE void TransposeRows(const float* k, size_t stride, size_t rows,
                              size_t head_dim, float* keys) {
  size_t row = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; row + 4 <= rows; row += 4) {
    const float* from = k + row * stride;
    size_t i = 0;
    for (; i + 4 <= head_dim; i += 4) {
      Transpose4x4(from + i, stride, keys + i * kTile + row, kTile);
    }
    for (; i < head_dim; ++i) {
      for (size_t r = 0; r < 4; ++r) {
        keys[i * kTile + row + r] = from[r * stride + i];
      }
    }
  }
#endif
  for (; row < rows; ++row) {
    for (size_t i = 0; i < head_dim; ++i) {
      keys[i * kTile + row] = k[row * stride + i];
    }
  }
}

// Copies the block's keys and values together, wherever they lie; columns
// without a token become zero. Rows a power of two apart, as in a slot, would
// fall on the same cache lines.
HWY_INLINE void Gather(const AttentionArgs& args, const KeyBlock& block,
                       float* keys, float* values) {
  const size_t head_dim = static_cast<size_t>(args.head_dim);
  const size_t first = static_cast<size_t>(block.first - block.start);
  const size_t last = static_cast<size_t>(block.last - block.start);
  for (size_t i = 0; i < head_dim && last - first < kTile; ++i) {
    std::fill(keys + i * kTile, keys + i * kTile + first, 0.0f);
    std::fill(keys + i * kTile + last, keys + (i + 1) * kTile, 0.0f);
  }
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
    const size_t column = static_cast<size_t>(token - block.start);
    TransposeRows(from.k + row * from.stride, from.stride, count, head_dim,
                  keys + column);
    for (int64_t r = 0; r < count; ++r) {
      std::memcpy(values + (column + r) * head_dim,
                  from.v + (row + r) * from.stride, head_dim * sizeof(float));
    }
    token += count;
  }
}

// scores = q k^T, [count, kTile].
HWY_INLINE void Scores(const QueryRows& rows, const KeyBlock& block,
                       size_t head_dim, float* scores) {
  const size_t lanes = hn::Lanes(hn::ScalableTag<float>());
  const size_t end = hwy::RoundUpTo(block.last - block.start, lanes);
  ForRows(0, rows.count, [&](auto count, size_t row) HWY_ATTR {
    ForColumns<kBlockVecs>(end, [&](auto d, auto vecs, size_t c) HWY_ATTR {
      using D = decltype(d);
      hn::Vec<D> sum[count.value][vecs.value];
      ZeroBlock<D>(sum);
      MulAddBlock<D>(rows.q + row * rows.q_stride, rows.q_stride,
                     block.keys + c, kTile, head_dim, sum);
      StoreBlock<D>(sum, scores + row * kTile + c, kTile);
    });
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
    const auto weight = ExpOf(d, hn::Sub(hn::LoadU(d, scores + c), shift));
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
  Scores(rows, block, head_dim, scores);
  for (size_t row = 0; row < rows.count; ++row) {
    const int64_t position =
        rows.position + static_cast<int64_t>(row) * rows.position_step;
    const int64_t lowest = window == 0 ? 0 : position - window + 1;
    Weigh(std::max(block.first, lowest) - block.start,
          std::min(block.last, position + 1) - block.start, head_dim,
          scores + row * kTile, rows.o + row * rows.o_stride, rows.max + row,
          rows.sum + row);
  }
  const size_t first = static_cast<size_t>(block.first - block.start);
  const size_t depth = static_cast<size_t>(block.last - block.first);
  ForRows(0, rows.count, [&](auto count, size_t row) HWY_ATTR {
    ForColumns<kBlockVecs>(head_dim, [&](auto d, auto vecs, size_t c) HWY_ATTR {
      using D = decltype(d);
      float* o = rows.o + row * rows.o_stride + c;
      hn::Vec<D> sum[count.value][vecs.value];
      LoadBlock<D>(o, rows.o_stride, sum);
      MulAddBlock<D>(scores + row * kTile + first, kTile,
                     block.values + first * head_dim + c, head_dim, depth, sum);
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
    const KeyBlock block = {.start = start,
                            .first = std::max(start, lowest),
                            .last = std::min(start + kTileRows, end),
                            .keys = keys,
                            .values = values};
    Gather(args, block, keys, values);
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
    const auto one = hn::Set(d, 1.0f);
    // exp(-|g|) cannot overflow: sigmoid(g) is 1 / (1 + e), or e / (1 + e).
    const auto g = hn::LoadU(d, gate + c);
    const auto e = ExpOf(d, hn::Neg(hn::Abs(g)));
    const auto above = hn::IfThenElse(hn::Lt(g, hn::Zero(d)), e, one);
    const auto sigmoid = hn::Div(above, hn::Add(one, e));
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
