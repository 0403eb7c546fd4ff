// Exponentials and what activations make of them, in vectors. Included as
// tile_ops.h is.
//
// Highway's own functions take any number, for twice as many operations. These
// take what activations and decays ask for.
#if defined(ENGINE_KERNELS_ACTIVATION_OPS_H_) == defined(HWY_TARGET_TOGGLE)
#ifndef ENGINE_KERNELS_ACTIVATION_OPS_H_
#define ENGINE_KERNELS_ACTIVATION_OPS_H_
#else
#undef ENGINE_KERNELS_ACTIVATION_OPS_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reprise {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Added to a small number, it leaves the nearest integer in the lowest bits.
constexpr float kRounding = 0x1.8p23f;

// exp(x) for x of at most 0, to 2 units in the last place; 0 below -87.33,
// where it would be no normal number; NaN of NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpUpToZero(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  const V shift = hn::Set(d, kRounding + 127);  // the exponents' bias
  const V biased = hn::MulAdd(x, hn::Set(d, 1.44269504f), shift);
  const V n = hn::Sub(biased, shift);
  // ln 2 in two parts, the first of so few bits that n times it is exact.
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  // Minimax for |r| <= ln(2) / 2: off by 2^-28.
  V p = hn::MulAdd(hn::Set(d, 1.38145418901e-3f), r,
                   hn::Set(d, 8.36874428176e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.16683907033e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.66665204059e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.99999934326e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, biased)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.33f)), hn::Mul(p, power));
}

// 2^x for x of at most 0, to 2.25 units in the last place; at most 2^-125 below
// -126. What becomes of NaN is not said.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp2UpToZero(D d, V x) {
  const hn::RebindToSigned<D> di;
  x = hn::Max(x, hn::Set(d, -126.0f));
  const V shift = hn::Set(d, kRounding);
  const V shifted = hn::Add(x, shift);
  const V r = hn::Sub(x, hn::Sub(shifted, shift));
  // Minimax for |r| <= 1 / 2: off by 2^-23.4.
  V p = hn::MulAdd(hn::Set(d, 1.32646625428e-3f), r,
                   hn::Set(d, 9.67156455821e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.55073436567e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 2.40222412928e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 6.93146977009e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  // Added to the exponent: multiplications are what the caller waits for.
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent));
}

// log(1 + x) for x in 0..1, to 3 units in the last place: 2 atanh(x / (2 + x)).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Log1pUpToOne(D d, V x) {
  const V s = hn::Div(x, hn::Add(hn::Set(d, 2.0f), x));
  const V y = hn::Mul(s, s);
  // Minimax for y <= 1 / 9: off by 2^-27.
  V p = hn::MulAdd(hn::Set(d, 1.40090464752e-1f), y,
                   hn::Set(d, 1.4000331938e-1f));
  p = hn::MulAdd(p, y, hn::Set(d, 2.0010795159e-1f));
  p = hn::MulAdd(p, y, hn::Set(d, 3.33332076611e-1f));
  const V twice = hn::Add(s, s);
  return hn::MulAdd(hn::Mul(p, y), twice, twice);
}

// 1 / (1 + exp(-x)) and x / (1 + exp(-x)), with the exponential of a negative
// number only, so that it cannot overflow.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V SigmoidOf(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V e = ExpUpToZero(d, hn::Neg(hn::Abs(x)));
  const V above = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
  return hn::Div(above, hn::Add(one, e));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V SiluOf(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V e = ExpUpToZero(d, hn::Neg(hn::Abs(x)));
  const V above = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(x, e), x);
  return hn::Div(above, hn::Add(one, e));
}

// log(1 + exp(x)), likewise.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V SoftplusOf(D d, V x) {
  const V e = ExpUpToZero(d, hn::Neg(hn::Abs(x)));
  const V above = hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
  return hn::Add(above, Log1pUpToOne(d, e));
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise
HWY_AFTER_NAMESPACE();

#endif  // ENGINE_KERNELS_ACTIVATION_OPS_H_
