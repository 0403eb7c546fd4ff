#include "engine/kernels/rotary.h"

#include <cmath>
#include <cstddef>
#include <numbers>

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/rotary.cc"
#include "hwy/foreach_target.h"  // must come first
// clang-format on
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reprise {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// cos_sin holds the angles in its first half.
void CosSin(int64_t size, float* cos_sin) {
  const size_t half = static_cast<size_t>(size);
  const auto fill = [&](auto d, size_t i) HWY_ATTR {
    const auto angle = hn::LoadU(d, cos_sin + i);
    hn::StoreU(hn::Cos(d, angle), d, cos_sin + i);
    hn::StoreU(hn::Sin(d, angle), d, cos_sin + half + i);
  };
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= half; i += lanes) fill(d, i);
  for (; i < half; ++i) fill(hn::CappedTag<float, 1>(), i);
}

void Rotate(const float* cos_sin, int64_t size, float* x) {
  const size_t half = static_cast<size_t>(size);
  const auto turn = [&](auto d, size_t i) HWY_ATTR {
    const auto cos = hn::LoadU(d, cos_sin + i);
    const auto sin = hn::LoadU(d, cos_sin + half + i);
    const auto a = hn::LoadU(d, x + i);
    const auto b = hn::LoadU(d, x + half + i);
    hn::StoreU(hn::NegMulAdd(b, sin, hn::Mul(a, cos)), d, x + i);
    hn::StoreU(hn::MulAdd(a, sin, hn::Mul(b, cos)), d, x + half + i);
  };
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= half; i += lanes) turn(d, i);
  for (; i < half; ++i) turn(hn::CappedTag<float, 1>(), i);
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise {

HWY_EXPORT(CosSin);
HWY_EXPORT(Rotate);

void RotaryAngles(const double* turns, int64_t half, int64_t position,
                  float* cos_sin) {
  for (int64_t i = 0; i < half; ++i) {
    const double turned = static_cast<double>(position) * turns[i];
    // Within half a turn, where f32 is fine enough.
    const double rest = turned - std::nearbyint(turned);
    cos_sin[i] = static_cast<float>(rest * 2 * std::numbers::pi);
  }
  HWY_DYNAMIC_DISPATCH(CosSin)(half, cos_sin);
}

void Rotate(const float* cos_sin, int64_t half, float* x) {
  HWY_DYNAMIC_DISPATCH(Rotate)(cos_sin, half, x);
}

}  // namespace reprise
#endif  // HWY_ONCE
