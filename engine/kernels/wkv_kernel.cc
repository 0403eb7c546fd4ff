#include "engine/kernels/wkv_kernel.h"

#include <cstddef>

#include "engine/base/log.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/wkv_kernel.cc"
#include "hwy/foreach_target.h"  // must come first
// clang-format on
#include "engine/kernels/tile_ops.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

// Compiled once per target.
HWY_BEFORE_NAMESPACE();
namespace reprise {
namespace HWY_NAMESPACE {

// exp(a - max(a, b)) and exp(b - max(a, b)): one of them is 1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void TwoWeights(D d, V a, V b, V* weight_a, V* weight_b) {
  const V one = hn::Set(d, 1.0f);
  const V e = hn::Exp(d, hn::Neg(hn::Abs(hn::Sub(a, b))));
  const auto b_above = hn::Lt(a, b);
  *weight_a = hn::IfThenElse(b_above, e, one);
  *weight_b = hn::IfThenElse(b_above, one, e);
}

// What a peak that does not count is taken for.
constexpr float kLowest = -1e30f;

template <class D>
HWY_INLINE void Channels(D d, const WkvArgs& args, size_t c) {
  using V = hn::Vec<D>;
  const V decay = hn::LoadU(d, args.decay + c);
  const V bonus = hn::LoadU(d, args.bonus + c);
  V num = hn::LoadU(d, args.numerator + c);
  V den = hn::LoadU(d, args.denominator + c);
  V peak = hn::IfThenElse(hn::Eq(den, hn::Zero(d)), hn::Set(d, kLowest),
                          hn::LoadU(d, args.peak + c));
  for (int64_t row = 0; row < args.rows; ++row) {
    const size_t at = static_cast<size_t>(row * args.stride) + c;
    const V k = hn::LoadU(d, args.k + at);
    const V v = hn::LoadU(d, args.v + at);
    V past, now;
    TwoWeights(d, peak, hn::Add(bonus, k), &past, &now);
    const V y = hn::Div(hn::MulAdd(past, num, hn::Mul(now, v)),
                        hn::MulAdd(past, den, now));
    hn::StoreU(y, d, args.y + at);
    const V decayed = hn::Add(peak, decay);
    TwoWeights(d, decayed, k, &past, &now);
    num = hn::MulAdd(past, num, hn::Mul(now, v));
    den = hn::MulAdd(past, den, now);
    peak = hn::Max(decayed, k);
  }
  hn::StoreU(num, d, args.numerator + c);
  hn::StoreU(den, d, args.denominator + c);
  hn::StoreU(peak, d, args.peak + c);
}

void Wkv(const WkvArgs& args) {
  ForColumns<1>(static_cast<size_t>(args.channels),
                [&](auto d, auto, size_t c) HWY_ATTR { Channels(d, args, c); });
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise {

HWY_EXPORT(Wkv);

void Wkv(const WkvArgs& args) {
  CHECK(args.rows >= 1 && args.channels >= 0);
  HWY_DYNAMIC_DISPATCH(Wkv)(args);
}

}  // namespace reprise
#endif  // HWY_ONCE
