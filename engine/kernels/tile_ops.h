// Pieces of the tile kernels: blocks of accumulators, and the loops that cover
// rows and columns with them. Included by a kernel's source after Highway's
// foreach_target.h, and compiled there once for each target: the guard flips
// from target to target.
//
// Every number of a product is one sum over p = 0, 1, 2, ..., whatever block
// it is in: which rows or columns share one does not show in the bits.
#if defined(ENGINE_KERNELS_TILE_OPS_H_) == defined(HWY_TARGET_TOGGLE)
#ifndef ENGINE_KERNELS_TILE_OPS_H_
#define ENGINE_KERNELS_TILE_OPS_H_
#else
#undef ENGINE_KERNELS_TILE_OPS_H_
#endif

#include <cstddef>
#include <type_traits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reprise {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <int kValue>
using Int = std::integral_constant<int, kValue>;

// A block is kBlockRows x kBlockVecs accumulators. Two FMA units of 4 cycles
// need 8 sums at a time; 16 leave slack and, with 4 + 1 operands, fit the 32
// registers of AVX-512. With 16 registers it is 8 sums.
constexpr size_t kBlockRows = 4;
#if HWY_TARGET <= HWY_AVX3
constexpr int kBlockVecs = 4;
#else
constexpr int kBlockVecs = 2;
#endif

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

// Covers the rows [first, n): body(rows, row) treats `rows` rows from `row`.
template <class Body>
HWY_INLINE void ForRows(size_t first, size_t n, Body body) {
  size_t row = first;
  for (; row + kBlockRows <= n; row += kBlockRows) {
    body(Int<kBlockRows>(), row);
  }
  for (; row < n; ++row) body(Int<1>(), row);
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
HWY_INLINE void LoadBlock(const float* in, size_t stride,
                          hn::Vec<D> (&sum)[kRows][kVecs]) {
  const D d;
  HWY_UNROLL(4)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(4)
    for (int j = 0; j < kVecs; ++j) {
      sum[i][j] = hn::LoadU(d, in + i * stride + j * hn::Lanes(d));
    }
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

// sum[i][j] += a[i, p] b[p, j] over p < depth.
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

}  // namespace HWY_NAMESPACE
}  // namespace reprise
HWY_AFTER_NAMESPACE();

#endif  // ENGINE_KERNELS_TILE_OPS_H_
