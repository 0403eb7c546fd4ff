#include "engine/kernels/simd_ops.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <numbers>

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/simd_ops.cc"
#include "hwy/foreach_target.h"  // must come first
// clang-format on
#include "engine/kernels/activation_ops.h"
#include "hwy/highway.h"

// Compiled once per target (AVX2, AVX-512, ...). Tails go through a
// buffer of one vector: masked loads may read past the end on older targets.
HWY_BEFORE_NAMESPACE();
namespace reprise {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// The first n lanes of p, n < Lanes; the others are `fill`.
HWY_INLINE VF LoadTail(const float* p, size_t n, float fill) {
  const DF d;
  HWY_ALIGN float buffer[hn::MaxLanes(d)];
  hn::Store(hn::Set(d, fill), d, buffer);
  std::memcpy(buffer, p, n * sizeof(float));
  return hn::Load(d, buffer);
}

HWY_INLINE void StoreTail(VF v, size_t n, float* p) {
  const DF d;
  HWY_ALIGN float buffer[hn::MaxLanes(d)];
  hn::Store(v, d, buffer);
  std::memcpy(p, buffer, n * sizeof(float));
}

// out[i] = op(in[i]).
template <class Op>
HWY_INLINE void Map(const float* in, int64_t size, float* out, Op op) {
  const DF d;
  const size_t n = static_cast<size_t>(size);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    hn::StoreU(op(hn::LoadU(d, in + i)), d, out + i);
  }
  if (i < n) StoreTail(op(LoadTail(in + i, n - i, 0)), n - i, out + i);
}

// out[i] = op(a[i], b[i]).
template <class Op>
HWY_INLINE void Map2(const float* a, const float* b, int64_t size, float* out,
                     Op op) {
  const DF d;
  const size_t n = static_cast<size_t>(size);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    hn::StoreU(op(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  }
  if (i < n) {
    const VF va = LoadTail(a + i, n - i, 0);
    const VF vb = LoadTail(b + i, n - i, 0);
    StoreTail(op(va, vb), n - i, out + i);
  }
}

// The sum of op(x[i]), in an order that depends on n and the target alone:
// four accumulators, which also hide the latency of the additions.
template <class Op>
HWY_INLINE float SumOf(const float* x, int64_t size, Op op) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  const size_t n = static_cast<size_t>(size);
  VF sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    sum0 = hn::Add(sum0, op(hn::LoadU(d, x + i)));
    sum1 = hn::Add(sum1, op(hn::LoadU(d, x + i + lanes)));
    sum2 = hn::Add(sum2, op(hn::LoadU(d, x + i + 2 * lanes)));
    sum3 = hn::Add(sum3, op(hn::LoadU(d, x + i + 3 * lanes)));
  }
  for (; i + lanes <= n; i += lanes) {
    sum0 = hn::Add(sum0, op(hn::LoadU(d, x + i)));
  }
  if (i < n) {
    const VF last = op(LoadTail(x + i, n - i, 0));
    sum1 = hn::Add(sum1, hn::IfThenElseZero(hn::FirstN(d, n - i), last));
  }
  const VF sum = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void Multiply(const float* a, const float* b, int64_t n, float* out) {
  Map2(a, b, n, out, [](VF x, VF y) HWY_ATTR { return hn::Mul(x, y); });
}

void AddInto(const float* x, int64_t n, float* y) {
  Map2(x, y, n, y, [](VF a, VF b) HWY_ATTR { return hn::Add(a, b); });
}

void Scale(float factor, int64_t n, float* x) {
  const VF f = hn::Set(DF(), factor);
  Map(x, n, x, [f](VF v) HWY_ATTR { return hn::Mul(v, f); });
}

float Sum(const float* x, int64_t n) {
  return SumOf(x, n, [](VF v) HWY_ATTR { return v; });
}

float Max(const float* x, int64_t size) {
  const DF d;
  const size_t n = static_cast<size_t>(size);
  VF max = hn::Set(d, x[0]);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    max = hn::Max(max, hn::LoadU(d, x + i));
  }
  if (i < n) max = hn::Max(max, LoadTail(x + i, n - i, x[0]));
  return hn::GetLane(hn::MaxOfLanes(d, max));
}

void RmsNorm(const float* x, const float* weight, int64_t n, float eps,
             float* out) {
  const float squares =
      SumOf(x, n, [](VF v) HWY_ATTR { return hn::Mul(v, v); });
  const float mean = squares / static_cast<float>(n);
  const VF f = hn::Set(DF(), 1.0f / std::sqrt(mean + eps));
  if (weight == nullptr) {
    Map(x, n, out, [f](VF v) HWY_ATTR { return hn::Mul(v, f); });
  } else {
    Map2(x, weight, n, out,
         [f](VF v, VF w) HWY_ATTR { return hn::Mul(hn::Mul(v, f), w); });
  }
}

void LayerNorm(const float* x, const float* weight, const float* bias,
               int64_t n, float eps, float* out) {
  const float mean = Sum(x, n) / static_cast<float>(n);
  const VF m = hn::Set(DF(), mean);
  // Two passes: mean(x^2) - mean^2 would cancel where the mean is large.
  const float squares = SumOf(x, n, [m](VF v) HWY_ATTR {
    const VF c = hn::Sub(v, m);
    return hn::Mul(c, c);
  });
  const float variance = squares / static_cast<float>(n);
  const VF f = hn::Set(DF(), 1.0f / std::sqrt(variance + eps));
  Map(x, n, out, [m, f](VF v) HWY_ATTR { return hn::Mul(hn::Sub(v, m), f); });
  if (weight != nullptr) Multiply(out, weight, n, out);
  if (bias != nullptr) AddInto(bias, n, out);
}

void Relu(float* x, int64_t n) {
  // Not Max: it would turn NaN into 0.
  Map(x, n, x, [](VF v) HWY_ATTR {
    return hn::IfThenZeroElse(hn::Lt(v, hn::Zero(DF())), v);
  });
}

void Silu(float* x, int64_t n) {
  Map(x, n, x, [](VF v) HWY_ATTR { return SiluOf(DF(), v); });
}

void EluPlusOne(float* x, int64_t n) {
  Map(x, n, x, [](VF v) HWY_ATTR {
    const DF d;
    const auto positive = hn::Gt(v, hn::Zero(d));
    const VF exp = ExpUpToZero(d, hn::IfThenZeroElse(positive, v));
    return hn::IfThenElse(positive, hn::Add(v, hn::Set(d, 1.0f)), exp);
  });
}

void SiluMultiply(const float* gate, const float* up, int64_t n, float* out) {
  Map2(gate, up, n, out,
       [](VF g, VF u) HWY_ATTR { return hn::Mul(SiluOf(DF(), g), u); });
}

void Softmax(float* x, int64_t n) {
  const VF max = hn::Set(DF(), Max(x, n));
  Map(x, n, x,
      [max](VF v) HWY_ATTR { return ExpUpToZero(DF(), hn::Sub(v, max)); });
  Scale(1.0f / Sum(x, n), n, x);
}

// The integer conversions work lane by lane on 32 bits.
using DU32 = hn::ScalableTag<uint32_t>;
using DU16 = hn::Rebind<uint16_t, DU32>;
using VU32 = hn::Vec<DU32>;

template <class Op>
HWY_INLINE void Widen(const uint16_t* x, int64_t size, float* out, Op op) {
  const DF d;
  const DU16 d16;
  const size_t n = static_cast<size_t>(size);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const VU32 bits = hn::PromoteTo(DU32(), hn::LoadU(d16, x + i));
    hn::StoreU(op(bits), d, out + i);
  }
  if (i == n) return;
  HWY_ALIGN uint16_t buffer[hn::MaxLanes(d16)] = {};
  std::memcpy(buffer, x + i, (n - i) * sizeof(uint16_t));
  StoreTail(op(hn::PromoteTo(DU32(), hn::Load(d16, buffer))), n - i, out + i);
}

void Bf16ToF32(const uint16_t* x, int64_t n, float* out) {
  Widen(x, n, out, [](VU32 bits) HWY_ATTR {
    return hn::BitCast(DF(), hn::ShiftLeft<16>(bits));
  });
}

// Not Highway's own conversion: without F16C it gives numbers for infinity and
// NaN. Here the exponent and mantissa move to their f32 places and a factor
// 2^(127 - 15) corrects the bias, which is exact for subnormals too.
void F16ToF32(const uint16_t* x, int64_t n, float* out) {
  Widen(x, n, out, [](VU32 half) HWY_ATTR {
    const DU32 du;
    const DF df;
    const VU32 sign =
        hn::ShiftLeft<16>(hn::And(half, hn::Set(du, uint32_t{0x8000})));
    const VU32 rest =
        hn::ShiftLeft<13>(hn::And(half, hn::Set(du, uint32_t{0x7fff})));
    const VF scaled = hn::Mul(hn::BitCast(df, rest), hn::Set(df, 0x1p112f));
    const VU32 f32_infinity = hn::Set(du, uint32_t{0x7f800000});
    const VU32 f16_infinity = hn::Set(du, uint32_t{0x7c00 << 13});
    const auto special = hn::Eq(hn::And(rest, f16_infinity), f16_infinity);
    const VU32 bits = hn::IfThenElse(special, hn::Or(rest, f32_infinity),
                                     hn::BitCast(du, scaled));
    return hn::BitCast(df, hn::Or(bits, sign));
  });
}

HWY_INLINE hn::Vec<DU16> RoundToBf16(VU32 bits) {
  const DU32 d;
  const VU32 one = hn::Set(d, uint32_t{1});
  const VU32 upper = hn::ShiftRight<16>(bits);
  // Half of the last kept bit, less one where that bit is even.
  const VU32 half = hn::Add(hn::Set(d, uint32_t{0x7fff}), hn::And(upper, one));
  const VU32 rounded = hn::ShiftRight<16>(hn::Add(bits, half));
  const VU32 quiet_nan = hn::Or(upper, hn::Set(d, uint32_t{0x40}));
  const auto is_nan = hn::IsNaN(hn::BitCast(DF(), bits));
  const VU32 chosen =
      hn::IfThenElse(hn::RebindMask(d, is_nan), quiet_nan, rounded);
  const hn::RebindToSigned<DU32> signed_d;
  return hn::DemoteTo(DU16(), hn::BitCast(signed_d, chosen));
}

void F32ToBf16(const float* x, int64_t size, uint16_t* out) {
  const DF d;
  const DU32 du;
  const DU16 d16;
  const size_t n = static_cast<size_t>(size);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const VU32 bits = hn::BitCast(du, hn::LoadU(d, x + i));
    hn::StoreU(RoundToBf16(bits), d16, out + i);
  }
  if (i == n) return;
  HWY_ALIGN uint16_t buffer[hn::MaxLanes(d16)];
  const VU32 bits = hn::BitCast(du, LoadTail(x + i, n - i, 0));
  hn::Store(RoundToBf16(bits), d16, buffer);
  std::memcpy(out + i, buffer, (n - i) * sizeof(uint16_t));
}

bool AllFinite(const float* x, int64_t size) {
  const DF d;
  const size_t n = static_cast<size_t>(size);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    if (!hn::AllTrue(d, hn::IsFinite(hn::LoadU(d, x + i)))) return false;
  }
  return i == n || hn::AllTrue(d, hn::IsFinite(LoadTail(x + i, n - i, 0)));
}

float HighestFinite(const float* x, int64_t size) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  const size_t n = static_cast<size_t>(size);
  const float never = -std::numeric_limits<float>::infinity();
  const auto higher = [&](VF highest, VF v) HWY_ATTR {
    return hn::IfThenElse(hn::IsFinite(v), hn::Max(highest, v), highest);
  };
  VF highest0 = hn::Set(d, never), highest1 = highest0;  // for two units
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    highest0 = higher(highest0, hn::LoadU(d, x + i));
    highest1 = higher(highest1, hn::LoadU(d, x + i + lanes));
  }
  for (; i < n; i += lanes) {
    const size_t left = n - i;
    highest0 = higher(highest0, left < lanes ? LoadTail(x + i, left, never)
                                             : hn::LoadU(d, x + i));
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(highest0, highest1)));
}

void KeepFinite(const float* x, int64_t n, float* out) {
  const VF never = hn::Set(DF(), -std::numeric_limits<float>::infinity());
  Map(x, n, out, [never](VF v) HWY_ATTR {
    return hn::IfThenElse(hn::IsFinite(v), v, never);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise {

HWY_EXPORT(RmsNorm);
HWY_EXPORT(LayerNorm);
HWY_EXPORT(AddInto);
HWY_EXPORT(Multiply);
HWY_EXPORT(Relu);
HWY_EXPORT(Silu);
HWY_EXPORT(EluPlusOne);
HWY_EXPORT(SiluMultiply);
HWY_EXPORT(Softmax);
HWY_EXPORT(Sum);
HWY_EXPORT(Max);
HWY_EXPORT(Scale);
HWY_EXPORT(Bf16ToF32);
HWY_EXPORT(F16ToF32);
HWY_EXPORT(F32ToBf16);
HWY_EXPORT(AllFinite);
HWY_EXPORT(HighestFinite);
HWY_EXPORT(KeepFinite);

void RmsNorm(const float* x, const float* weight, int64_t n, float eps,
             float* out) {
  HWY_DYNAMIC_DISPATCH(RmsNorm)(x, weight, n, eps, out);
}

void LayerNorm(const float* x, const float* weight, const float* bias,
               int64_t n, float eps, float* out) {
  HWY_DYNAMIC_DISPATCH(LayerNorm)(x, weight, bias, n, eps, out);
}

void AddInto(const float* x, int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(AddInto)(x, n, y);
}

void Multiply(const float* a, const float* b, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(Multiply)(a, b, n, out);
}

void Relu(float* x, int64_t n) { HWY_DYNAMIC_DISPATCH(Relu)(x, n); }

// Scalar: few models have it, and the standard library's erfc keeps the tail
// of negative x accurate, where 1 + erf(x) would cancel.
void GeluExact(float* x, int64_t n) {
  constexpr float kSqrtHalf = std::numbers::sqrt2_v<float> / 2;
  for (int64_t i = 0; i < n; ++i) {
    x[i] = 0.5f * x[i] * std::erfc(-x[i] * kSqrtHalf);
  }
}

void Silu(float* x, int64_t n) { HWY_DYNAMIC_DISPATCH(Silu)(x, n); }

void EluPlusOne(float* x, int64_t n) { HWY_DYNAMIC_DISPATCH(EluPlusOne)(x, n); }

void SiluMultiply(const float* gate, const float* up, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(SiluMultiply)(gate, up, n, out);
}

void Softmax(float* x, int64_t n) { HWY_DYNAMIC_DISPATCH(Softmax)(x, n); }

float Sum(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(Sum)(x, n); }

float Max(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(Max)(x, n); }

void Scale(float factor, int64_t n, float* x) {
  HWY_DYNAMIC_DISPATCH(Scale)(factor, n, x);
}

void Bf16ToF32(const uint16_t* x, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(Bf16ToF32)(x, n, out);
}

void F16ToF32(const uint16_t* x, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(F16ToF32)(x, n, out);
}

void F32ToBf16(const float* x, int64_t n, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(F32ToBf16)(x, n, out);
}

bool AllFinite(const float* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(AllFinite)(x, n);
}

float HighestFinite(const float* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(HighestFinite)(x, n);
}

void KeepFinite(const float* x, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(KeepFinite)(x, n, out);
}

}  // namespace reprise
#endif  // HWY_ONCE
