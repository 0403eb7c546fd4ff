#include "engine/kernels/state_kernels.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "engine/base/log.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/state_kernels.cc"
#include "hwy/foreach_target.h"  // must come first
// clang-format on
#include "hwy/highway.h"

// Compiled once per target. Every number of a result is one sum, taken in an
// order that the block sizes below do not change: which heads a call has, and
// which columns share a block, does not show in the bits.
HWY_BEFORE_NAMESPACE();
namespace reprise {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <int kValue>
using Int = std::integral_constant<int, kValue>;

constexpr size_t kTile = static_cast<size_t>(kTileRows);

// A matmul block is kBlockRows x kBlockVecs accumulators. Two FMA units of 4
// cycles need 8 sums at a time; 16 leave slack and, with 4 + 1 operands, fit
// the 32 registers of AVX-512. With 16 registers it is 8 sums.
constexpr size_t kBlockRows = 4;
#if HWY_TARGET <= HWY_AVX3
constexpr int kBlockVecs = 4;
#else
constexpr int kBlockVecs = 2;
#endif

// Rows and state of one head.
struct Head {
  const float* q;
  const float* k;
  const float* v;
  float* o;
  float* s;  // [key_dim, value_dim]
  float* z;  // [key_dim] or null
};

HWY_INLINE Head HeadAt(const LinearAttentionArgs& args, int64_t head) {
  const int64_t kv_head = head / args.heads_per_kv;
  const int64_t state_size = args.key_dim * args.value_dim;
  return {.q = args.q + head * args.key_dim,
          .k = args.k + kv_head * args.key_dim,
          .v = args.v + kv_head * args.value_dim,
          .o = args.o + head * args.value_dim,
          .s = args.s + head * state_size,
          .z = args.normalize ? args.z + head * args.key_dim : nullptr};
}

// Covers the columns [0, n) by blocks: body(d, vecs, column) treats `vecs`
// vectors of tag d. What is left after whole vectors goes by 4 and by 1 lane.
template <int kMaxVecs, class Body>
HWY_INLINE void ForColumns(size_t n, Body body) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t c = 0;
  for (; c + kMaxVecs * lanes <= n; c += kMaxVecs * lanes) {
    body(d, Int<kMaxVecs>(), c);
  }
  if constexpr (kMaxVecs > 2) {
    for (; c + 2 * lanes <= n; c += 2 * lanes) body(d, Int<2>(), c);
  }
  for (; c + lanes <= n; c += lanes) body(d, Int<1>(), c);
  using D4 = hn::CappedTag<float, 4>;
  using VecsOf4 = Int<4 / hn::MaxLanes(D4())>;
  for (; c + 4 <= n; c += 4) body(D4(), VecsOf4(), c);
  for (; c < n; ++c) body(hn::CappedTag<float, 1>(), Int<1>(), c);
}

// Covers the rows [0, n): body(rows, row) treats `rows` rows from `row`.
template <class Body>
HWY_INLINE void ForRows(size_t n, Body body) {
  size_t row = 0;
  for (; row + kBlockRows <= n; row += kBlockRows) {
    body(Int<kBlockRows>(), row);
  }
  for (; row < n; ++row) body(Int<1>(), row);
}

// y += x.
HWY_INLINE void AddTo(const float* x, size_t n, float* y) {
  ForColumns<1>(n, [&](auto d, auto, size_t c) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, y + c), hn::LoadU(d, x + c)), d, y + c);
  });
}

HWY_INLINE float Dot(const float* a, const float* b, size_t n) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  auto sum = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    sum = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum);
  }
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) total += a[i] * b[i];
  return total;
}

// What q^T S is multiplied by, given q^T z.
HWY_INLINE float Factor(const LinearAttentionArgs& args, float q_dot_z) {
  if (!args.normalize) return args.scale;
  return args.scale / (args.scale * q_dot_z + args.epsilon);
}

// One row: S += k v^T and o = factor q^T S for some columns, in one pass. The
// state's loads and stores bound it, so 4 sums at a time are enough.
template <class D, int kVecs>
HWY_INLINE void StepColumns(const float* q, const float* k, const float* v,
                            size_t key_dim, size_t value_dim, float factor,
                            float* s, float* o) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<D> value[kVecs];
  hn::Vec<D> sum[kVecs];
  HWY_UNROLL(4)
  for (int j = 0; j < kVecs; ++j) {
    value[j] = hn::LoadU(d, v + j * lanes);
    sum[j] = hn::Zero(d);
  }
  for (size_t i = 0; i < key_dim; ++i, s += value_dim) {
    const auto ki = hn::Set(d, k[i]);
    const auto qi = hn::Set(d, q[i]);
    HWY_UNROLL(4)
    for (int j = 0; j < kVecs; ++j) {
      float* place = s + j * lanes;
      const auto next = hn::MulAdd(ki, value[j], hn::LoadU(d, place));
      hn::StoreU(next, d, place);
      sum[j] = hn::MulAdd(qi, next, sum[j]);
    }
  }
  HWY_UNROLL(4)
  for (int j = 0; j < kVecs; ++j) {
    hn::StoreU(hn::Mul(sum[j], hn::Set(d, factor)), d, o + j * lanes);
  }
}

void LinearAttentionRecurrent(const LinearAttentionArgs& args) {
  const size_t key_dim = static_cast<size_t>(args.key_dim);
  const size_t value_dim = static_cast<size_t>(args.value_dim);
  for (int64_t h = args.first_head; h < args.last_head; ++h) {
    const Head head = HeadAt(args, h);
    for (int64_t row = 0; row < args.rows; ++row) {
      const float* q = head.q + row * args.q_stride;
      const float* k = head.k + row * args.k_stride;
      const float* v = head.v + row * args.v_stride;
      float* o = head.o + row * args.o_stride;
      float q_dot_z = 0;
      if (args.normalize) {
        AddTo(k, key_dim, head.z);
        q_dot_z = Dot(q, head.z, key_dim);
      }
      const float factor = Factor(args, q_dot_z);
      ForColumns<4>(value_dim, [&](auto d, auto vecs, size_t c) HWY_ATTR {
        StepColumns<decltype(d), vecs.value>(q, k, v + c, key_dim, value_dim,
                                             factor, head.s + c, o + c);
      });
    }
  }
}

// A block of a matmul: sum[i][j] += a[i, p] b[p, j] over p < depth.
template <class D, int kRows, int kVecs>
HWY_INLINE void MulAddBlock(const float* a, size_t a_stride, const float* b,
                            size_t b_stride, size_t depth,
                            hn::Vec<D> (&sum)[kRows][kVecs]) {
  const D d;
  for (size_t p = 0; p < depth; ++p) {
    hn::Vec<D> row[kVecs];
    HWY_UNROLL(4)
    for (int j = 0; j < kVecs; ++j) {
      row[j] = hn::LoadU(d, b + p * b_stride + j * hn::Lanes(d));
    }
    HWY_UNROLL(4)
    for (int i = 0; i < kRows; ++i) {
      const auto ai = hn::Set(d, a[i * a_stride + p]);
      HWY_UNROLL(4)
      for (int j = 0; j < kVecs; ++j) {
        sum[i][j] = hn::MulAdd(ai, row[j], sum[i][j]);
      }
    }
  }
}

template <class D, int kRows, int kVecs>
HWY_INLINE void ZeroBlock(hn::Vec<D> (&sum)[kRows][kVecs]) {
  HWY_UNROLL(4)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(4)
    for (int j = 0; j < kVecs; ++j) sum[i][j] = hn::Zero(D());
  }
}

template <class D, int kRows, int kVecs>
HWY_INLINE void StoreBlock(const hn::Vec<D> (&sum)[kRows][kVecs], float* out,
                           size_t stride) {
  const D d;
  HWY_UNROLL(4)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(4)
    for (int j = 0; j < kVecs; ++j) {
      hn::StoreU(sum[i][j], d, out + i * stride + j * hn::Lanes(d));
    }
  }
}

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

// keys = k^T, [key_dim, kTile]; columns past the last row are zero. Both the
// scores and the update want it that way round.
HWY_INLINE void TransposeKeys(const LinearAttentionArgs& args, const float* k,
                              float* keys) {
  const size_t rows = static_cast<size_t>(args.rows);
  const size_t key_dim = static_cast<size_t>(args.key_dim);
  const size_t stride = static_cast<size_t>(args.k_stride);
  size_t row = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; row + 4 <= rows; row += 4) {
    const float* from = k + row * stride;
    size_t i = 0;
    for (; i + 4 <= key_dim; i += 4) {
      Transpose4x4(from + i, stride, keys + i * kTile + row, kTile);
    }
    for (; i < key_dim; ++i) {
      for (size_t r = 0; r < 4; ++r) {
        keys[i * kTile + row + r] = from[r * stride + i];
      }
    }
  }
#endif
  for (; row < rows; ++row) {
    for (size_t i = 0; i < key_dim; ++i) {
      keys[i * kTile + row] = k[row * stride + i];
    }
  }
  if (rows == kTile) return;
  for (size_t i = 0; i < key_dim; ++i) {
    std::fill(keys + i * kTile + rows, keys + (i + 1) * kTile, 0.0f);
  }
}

// scores[i, j] = q_i . k_j for j <= i, and 0 from there to the end of the
// vector and of the block of rows, [rows, kTile]; what lies beyond is not read.
HWY_INLINE void Scores(const LinearAttentionArgs& args, const float* q,
                       const float* keys, float* scores) {
  const size_t lanes = hn::Lanes(hn::ScalableTag<float>());
  const size_t stride = static_cast<size_t>(args.q_stride);
  const size_t key_dim = static_cast<size_t>(args.key_dim);
  ForRows(args.rows, [&](auto rows, size_t row) HWY_ATTR {
    // kTile is a multiple of every vector's length.
    const size_t end = hwy::RoundUpTo(row + rows.value, lanes);
    ForColumns<kBlockVecs>(end, [&](auto d, auto vecs, size_t c) HWY_ATTR {
      using D = decltype(d);
      hn::Vec<D> sum[rows.value][vecs.value];
      ZeroBlock<D>(sum);
      MulAddBlock<D>(q + row * stride, stride, keys + c, kTile, key_dim, sum);
      StoreBlock<D>(sum, scores + row * kTile + c, kTile);
    });
    for (size_t i = row; i < row + rows.value; ++i) {
      std::fill(scores + i * kTile + i + 1, scores + i * kTile + end, 0.0f);
    }
  });
}

// The factor of every row; z advances.
HWY_INLINE void Factors(const LinearAttentionArgs& args, const Head& head,
                        const float* scores, float* factors) {
  const hn::ScalableTag<float> d;
  for (int64_t row = 0; row < args.rows; ++row) {
    float q_dot_z = 0;
    if (args.normalize) {
      auto sum = hn::Zero(d);
      for (int64_t c = 0; c <= row; c += hn::Lanes(d)) {
        sum = hn::Add(sum, hn::LoadU(d, scores + row * kTile + c));
      }
      q_dot_z = hn::GetLane(hn::SumOfLanes(d, sum)) +
                Dot(head.q + row * args.q_stride, head.z, args.key_dim);
    }
    factors[row] = Factor(args, q_dot_z);
  }
  for (int64_t row = 0; args.normalize && row < args.rows; ++row) {
    AddTo(head.k + row * args.k_stride, args.key_dim, head.z);
  }
}

// Some columns of o = factor (scores v + q S), then of S += k^T v: the columns
// of the state are read and written while they are in the first cache. v is
// copied first, since rows a power of two apart fall on the same cache lines.
template <class D, int kVecs>
HWY_INLINE void TileColumns(const LinearAttentionArgs& args, const Head& head,
                            const float* scores, const float* keys,
                            const float* factors, size_t column) {
  const D d;
  constexpr size_t kWidth = kVecs * hn::MaxLanes(D());
  const size_t key_dim = static_cast<size_t>(args.key_dim);
  const size_t value_dim = static_cast<size_t>(args.value_dim);
  HWY_ALIGN float values[kTile * kWidth];  // [rows, kWidth]
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* from = head.v + row * args.v_stride + column;
    HWY_UNROLL(4)
    for (size_t c = 0; c < kWidth; c += hn::Lanes(d)) {
      hn::StoreU(hn::LoadU(d, from + c), d, values + row * kWidth + c);
    }
  }
  float* s = head.s + column;
  ForRows(args.rows, [&](auto rows, size_t row) HWY_ATTR {
    hn::Vec<D> sum[rows.value][kVecs];
    ZeroBlock<D>(sum);
    MulAddBlock<D>(scores + row * kTile, kTile, values, kWidth,
                   row + rows.value, sum);
    MulAddBlock<D>(head.q + row * args.q_stride, args.q_stride, s, value_dim,
                   key_dim, sum);
    HWY_UNROLL(4)
    for (int i = 0; i < rows.value; ++i) {
      HWY_UNROLL(4)
      for (int j = 0; j < kVecs; ++j) {
        sum[i][j] = hn::Mul(sum[i][j], hn::Set(d, factors[row + i]));
      }
    }
    StoreBlock<D>(sum, head.o + row * args.o_stride + column, args.o_stride);
  });
  ForRows(key_dim, [&](auto rows, size_t row) HWY_ATTR {
    hn::Vec<D> sum[rows.value][kVecs];
    float* block = s + row * value_dim;
    HWY_UNROLL(4)
    for (int i = 0; i < rows.value; ++i) {
      HWY_UNROLL(4)
      for (int j = 0; j < kVecs; ++j) {
        sum[i][j] = hn::LoadU(d, block + i * value_dim + j * hn::Lanes(d));
      }
    }
    MulAddBlock<D>(keys + row * kTile, kTile, values, kWidth, args.rows, sum);
    StoreBlock<D>(sum, block, value_dim);
  });
}

void LinearAttentionChunk(const LinearAttentionArgs& args) {
  HWY_ALIGN float scores[kTile * kTile];     // [rows, kTile]
  HWY_ALIGN float keys[kMaxKeyDim * kTile];  // [key_dim, kTile]
  float factors[kTile];                      // [rows]
  for (int64_t h = args.first_head; h < args.last_head; ++h) {
    const Head head = HeadAt(args, h);
    TransposeKeys(args, head.k, keys);
    Scores(args, head.q, keys, scores);
    Factors(args, head, scores, factors);
    ForColumns<kBlockVecs>(args.value_dim,
                           [&](auto d, auto vecs, size_t c) HWY_ATTR {
                             TileColumns<decltype(d), vecs.value>(
                                 args, head, scores, keys, factors, c);
                           });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise {

HWY_EXPORT(LinearAttentionRecurrent);
HWY_EXPORT(LinearAttentionChunk);

namespace {

void CheckArgs(const LinearAttentionArgs& args) {
  CHECK(args.rows >= 1 && args.rows <= kTileRows);
  CHECK(args.key_dim >= 1 && args.key_dim <= kMaxKeyDim);
  CHECK(args.value_dim >= 1 && args.heads_per_kv >= 1);
  CHECK(args.z != nullptr || !args.normalize);
}

}  // namespace

void LinearAttentionRecurrent(const LinearAttentionArgs& args) {
  CheckArgs(args);
  HWY_DYNAMIC_DISPATCH(LinearAttentionRecurrent)(args);
}

void LinearAttentionChunk(const LinearAttentionArgs& args) {
  CheckArgs(args);
  HWY_DYNAMIC_DISPATCH(LinearAttentionChunk)(args);
}

}  // namespace reprise
#endif  // HWY_ONCE
