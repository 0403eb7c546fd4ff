// Pieces of the decay family's tile: vectors and transposition. Included as
// tile_ops.h is.
#if defined(ENGINE_KERNELS_DECAY_TILE_OPS_H_) == defined(HWY_TARGET_TOGGLE)
#ifndef ENGINE_KERNELS_DECAY_TILE_OPS_H_
#define ENGINE_KERNELS_DECAY_TILE_OPS_H_
#else
#undef ENGINE_KERNELS_DECAY_TILE_OPS_H_
#endif

#include <algorithm>
#include <cstddef>

#include "engine/kernels/state_kernels.h"
#include "engine/kernels/tile_ops.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reprise {
namespace HWY_NAMESPACE {

constexpr size_t kTile = static_cast<size_t>(kTileRows);

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

// sum of a[i] b[i] c[i].
HWY_INLINE float Dot3(const float* a, const float* b, const float* c,
                      size_t n) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  auto sum = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    sum = hn::MulAdd(hn::Mul(hn::LoadU(d, a + i), hn::LoadU(d, b + i)),
                     hn::LoadU(d, c + i), sum);
  }
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) total += a[i] * b[i] * c[i];
  return total;
}

// y *= x.
HWY_INLINE void MultiplyInto(const float* x, size_t n, float* y) {
  ForColumns<1>(n, [&](auto d, auto, size_t c) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, y + c), hn::LoadU(d, x + c)), d, y + c);
  });
}

// sum[i][j] *= factors[i].
template <class D, int kRows, int kVecs>
HWY_INLINE void ScaleRows(const float* factors,
                          hn::Vec<D> (&sum)[kRows][kVecs]) {
  HWY_UNROLL(4)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(4)
    for (int j = 0; j < kVecs; ++j) {
      sum[i][j] = hn::Mul(sum[i][j], hn::Set(D(), factors[i]));
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

// to = from^T for `rows` rows of key_dim numbers; to is [key_dim, width], and
// its columns past the last row become `fill`.
HWY_INLINE void Transpose(const float* from, size_t stride, size_t rows,
                          size_t key_dim, size_t width, float fill, float* to) {
  size_t row = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; row + 4 <= rows; row += 4) {
    const float* block = from + row * stride;
    size_t i = 0;
    for (; i + 4 <= key_dim; i += 4) {
      Transpose4x4(block + i, stride, to + i * width + row, width);
    }
    for (; i < key_dim; ++i) {
      for (size_t r = 0; r < 4; ++r) {
        to[i * width + row + r] = block[r * stride + i];
      }
    }
  }
#endif
  for (; row < rows; ++row) {
    for (size_t i = 0; i < key_dim; ++i) {
      to[i * width + row] = from[row * stride + i];
    }
  }
  if (rows == width) return;
  for (size_t i = 0; i < key_dim; ++i) {
    std::fill(to + i * width + rows, to + (i + 1) * width, fill);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise
HWY_AFTER_NAMESPACE();

#endif  // ENGINE_KERNELS_DECAY_TILE_OPS_H_
