#include "engine/kernels/selective_scan.h"

#include <cstddef>

#include "engine/base/log.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/selective_scan.cc"
#include "hwy/foreach_target.h"  // must come first
// clang-format on
#include "engine/kernels/tile_ops.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

// Compiled once per target.
HWY_BEFORE_NAMESPACE();
namespace reprise {
namespace HWY_NAMESPACE {

// One channel of one row: advances h and returns C . h. A vector holds numbers
// of one channel: published models have N = 16, which is one vector of AVX-512.
HWY_INLINE float StepChannel(const float* a, const float* b, const float* c,
                             size_t n, float dt, float dt_x, float* h) {
  float sum = 0;
  ForColumns<1>(n, [&](auto d, auto, size_t i) HWY_ATTR {
    // dt >= 0 and A <= 0, so that Exp is within its range.
    const auto decay = hn::Exp(d, hn::Mul(hn::Set(d, dt), hn::LoadU(d, a + i)));
    const auto input = hn::Mul(hn::Set(d, dt_x), hn::LoadU(d, b + i));
    const auto next = hn::MulAdd(decay, hn::LoadU(d, h + i), input);
    hn::StoreU(next, d, h + i);
    const auto out = hn::Mul(hn::LoadU(d, c + i), next);
    sum += hn::GetLane(hn::SumOfLanes(d, out));
  });
  return sum;
}

void SelectiveScan(const SelectiveScanArgs& args) {
  const size_t n = static_cast<size_t>(args.state_size);
  for (int64_t channel = 0; channel < args.channels; ++channel) {
    const float* a = args.a + channel * args.state_size;
    float* h = args.h + channel * args.state_size;
    for (int64_t row = 0; row < args.rows; ++row) {
      const float x = args.x[row * args.x_stride + channel];
      const float dt = args.dt[row * args.dt_stride + channel];
      const float sum =
          StepChannel(a, args.b + row * args.bc_stride,
                      args.c + row * args.bc_stride, n, dt, dt * x, h);
      args.y[row * args.y_stride + channel] = sum + args.d[channel] * x;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise {

HWY_EXPORT(SelectiveScan);

void SelectiveScan(const SelectiveScanArgs& args) {
  CHECK(args.rows >= 1 && args.channels >= 0 && args.state_size >= 1);
  HWY_DYNAMIC_DISPATCH(SelectiveScan)(args);
}

}  // namespace reprise
#endif  // HWY_ONCE
