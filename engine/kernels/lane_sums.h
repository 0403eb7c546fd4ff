// Sums over the lanes of several vectors at once. Included as tile_ops.h is.
#if defined(ENGINE_KERNELS_LANE_SUMS_H_) == defined(HWY_TARGET_TOGGLE)
#ifndef ENGINE_KERNELS_LANE_SUMS_H_
#define ENGINE_KERNELS_LANE_SUMS_H_
#else
#undef ENGINE_KERNELS_LANE_SUMS_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reprise {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR
// The sum of a vector's blocks of four lanes.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<hn::Full128<float>> SumOfBlocks(D d, V v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return SumOfBlocks(half,
                       hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// The sums of a, b, c and e, each over all lanes, in the same order for all
// four: what the others are does not show in the bits of one.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<hn::Full128<float>> SumsOf4(D d, V a, V b, V c, V e) {
  const hn::Repartition<double, D> pairs;
  // In every block: a0 + a2, b0 + b2, a1 + a3, b1 + b3.
  const V ab =
      hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const V ce =
      hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto ab2 = hn::BitCast(pairs, ab);
  const auto ce2 = hn::BitCast(pairs, ce);
  return SumOfBlocks(
      d, hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, ab2, ce2)),
                 hn::BitCast(d, hn::InterleaveUpper(pairs, ab2, ce2))));
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace reprise
HWY_AFTER_NAMESPACE();

#endif  // ENGINE_KERNELS_LANE_SUMS_H_
