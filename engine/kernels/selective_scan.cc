#include "engine/kernels/selective_scan.h"

#include <cstddef>

#include "engine/base/log.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/selective_scan.cc"
#include "hwy/foreach_target.h"  // must come first
// clang-format on
#include "engine/kernels/activation_ops.h"
#include "engine/kernels/lane_sums.h"
#include "engine/kernels/tile_ops.h"
#include "hwy/highway.h"

// Compiled once per target.
HWY_BEFORE_NAMESPACE();
namespace reprise {
namespace HWY_NAMESPACE {

// A vector of one channel's numbers: advances h.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Step(D d, V a, V b, float dt, float dt_x, V h) {
  // dt >= 0 and A <= 0.
  const V decay = Exp2UpToZero(d, hn::Mul(hn::Set(d, dt), a));
  return hn::MulAdd(decay, h, hn::Mul(hn::Set(d, dt_x), b));
}

#if HWY_TARGET != HWY_SCALAR
// kChannels neighbouring channels, 4 or 1, whose N numbers are one vector: for
// published models, N = 16, that is so with AVX-512. They stay in registers
// from row to row, and four of them share the work of adding lanes.
template <int kChannels, class D>
HWY_INLINE void ScanVectors(D d, const SelectiveScanArgs& args,
                            int64_t channel) {
  using V = hn::Vec<D>;
  const hn::CappedTag<float, kChannels> each;
  const size_t n = hn::Lanes(d);
  V a[kChannels];
  V h[kChannels];
  HWY_UNROLL(4)
  for (int i = 0; i < kChannels; ++i) {
    a[i] = hn::LoadU(d, args.a + (channel + i) * n);
    h[i] = hn::LoadU(d, args.h + (channel + i) * n);
  }
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.x_stride + channel;
    const float* dt = args.dt + row * args.dt_stride + channel;
    const V b = hn::LoadU(d, args.b + row * args.bc_stride);
    const V c = hn::LoadU(d, args.c + row * args.bc_stride);
    V out[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    HWY_UNROLL(4)
    for (int i = 0; i < kChannels; ++i) {
      h[i] = Step(d, a[i], b, dt[i], dt[i] * x[i], h[i]);
      out[i] = hn::Mul(c, h[i]);
    }
    float sums[4];
    hn::StoreU(SumsOf4(d, out[0], out[1], out[2], out[3]), hn::Full128<float>(),
               sums);
    const auto y = hn::MulAdd(hn::LoadU(each, args.d + channel),
                              hn::LoadU(each, x), hn::LoadU(each, sums));
    hn::StoreU(y, each, args.y + row * args.y_stride + channel);
  }
  HWY_UNROLL(4)
  for (int i = 0; i < kChannels; ++i) {
    hn::StoreU(h[i], d, args.h + (channel + i) * n);
  }
}
#endif

// One channel of any N.
HWY_INLINE void ScanChannel(const SelectiveScanArgs& args, int64_t channel) {
  const size_t n = static_cast<size_t>(args.state_size);
  const float* a = args.a + channel * args.state_size;
  float* h = args.h + channel * args.state_size;
  for (int64_t row = 0; row < args.rows; ++row) {
    const float x = args.x[row * args.x_stride + channel];
    const float dt = args.dt[row * args.dt_stride + channel];
    const float* b = args.b + row * args.bc_stride;
    const float* c = args.c + row * args.bc_stride;
    float sum = 0;
    ForColumns<1>(n, [&](auto d, auto, size_t i) HWY_ATTR {
      const auto next = Step(d, hn::LoadU(d, a + i), hn::LoadU(d, b + i), dt,
                             dt * x, hn::LoadU(d, h + i));
      hn::StoreU(next, d, h + i);
      const auto out = hn::Mul(hn::LoadU(d, c + i), next);
      sum += hn::GetLane(hn::SumOfLanes(d, out));
    });
    args.y[row * args.y_stride + channel] = sum + args.d[channel] * x;
  }
}

void SelectiveScan(const SelectiveScanArgs& args) {
  int64_t channel = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<float> d;
  if (static_cast<size_t>(args.state_size) == hn::Lanes(d)) {
    for (; channel + 4 <= args.channels; channel += 4) {
      ScanVectors<4>(d, args, channel);
    }
    for (; channel < args.channels; ++channel) ScanVectors<1>(d, args, channel);
  }
#endif
  for (; channel < args.channels; ++channel) ScanChannel(args, channel);
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
