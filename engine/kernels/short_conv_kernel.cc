#include "engine/kernels/short_conv_kernel.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "engine/base/log.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/short_conv_kernel.cc"
#include "hwy/foreach_target.h"  // must come first
// clang-format on
#include "engine/kernels/activation_ops.h"
#include "hwy/highway.h"

// Compiled once per target. The sum over the taps is taken from the oldest to
// the newest in every path, so that none of them shows in the bits.
HWY_BEFORE_NAMESPACE();
namespace reprise {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <int kValue>
using Int = std::integral_constant<int, kValue>;

// The state of one vector of channels, one vector for each tap.
template <class D>
HWY_INLINE void LoadTaps(D d, const float* state, hn::Vec<D> (&taps)[2]) {
  hn::LoadInterleaved2(d, state, taps[0], taps[1]);
}
template <class D>
HWY_INLINE void LoadTaps(D d, const float* state, hn::Vec<D> (&taps)[3]) {
  hn::LoadInterleaved3(d, state, taps[0], taps[1], taps[2]);
}
template <class D>
HWY_INLINE void LoadTaps(D d, const float* state, hn::Vec<D> (&taps)[4]) {
  hn::LoadInterleaved4(d, state, taps[0], taps[1], taps[2], taps[3]);
}
template <class D>
HWY_INLINE void StoreTaps(D d, const hn::Vec<D> (&taps)[2], float* state) {
  hn::StoreInterleaved2(taps[0], taps[1], d, state);
}
template <class D>
HWY_INLINE void StoreTaps(D d, const hn::Vec<D> (&taps)[3], float* state) {
  hn::StoreInterleaved3(taps[0], taps[1], taps[2], d, state);
}
template <class D>
HWY_INLINE void StoreTaps(D d, const hn::Vec<D> (&taps)[4], float* state) {
  hn::StoreInterleaved4(taps[0], taps[1], taps[2], taps[3], d, state);
}

// One vector of channels from `c`, its latest inputs in registers.
template <int kTaps, bool kSilu, class D>
HWY_INLINE void ConvolveVector(D d, const ShortConvArgs& args, size_t c) {
  hn::Vec<D> weight[kTaps];
  hn::Vec<D> input[kTaps];
  HWY_UNROLL(4)
  for (int j = 0; j < kTaps; ++j) {
    weight[j] = hn::LoadU(d, args.weight + j * args.weight_stride + c);
  }
  const auto bias =
      args.bias == nullptr ? hn::Zero(d) : hn::LoadU(d, args.bias + c);
  LoadTaps(d, args.state + c * kTaps, input);
  for (int64_t row = 0; row < args.rows; ++row) {
    HWY_UNROLL(4)
    for (int j = 0; j + 1 < kTaps; ++j) input[j] = input[j + 1];
    input[kTaps - 1] = hn::LoadU(d, args.x + row * args.x_stride + c);
    auto sum = bias;
    HWY_UNROLL(4)
    for (int j = 0; j < kTaps; ++j) {
      sum = hn::MulAdd(weight[j], input[j], sum);
    }
    if constexpr (kSilu) sum = SiluOf(d, sum);
    hn::StoreU(sum, d, args.y + row * args.y_stride + c);
  }
  StoreTaps(d, input, args.state + c * kTaps);
}

template <int kTaps, bool kSilu>
void ConvolveFew(const ShortConvArgs& args) {
  const hn::ScalableTag<float> d;
  const size_t n = static_cast<size_t>(args.channels);
  size_t c = 0;
  for (; c + hn::Lanes(d) <= n; c += hn::Lanes(d)) {
    ConvolveVector<kTaps, kSilu>(d, args, c);
  }
  for (; c < n; ++c) {
    ConvolveVector<kTaps, kSilu>(hn::CappedTag<float, 1>(), args, c);
  }
}

// Any number of taps, channel by channel.
template <bool kSilu>
void ConvolveAny(const ShortConvArgs& args) {
  const hn::CappedTag<float, 1> d;
  for (int64_t c = 0; c < args.channels; ++c) {
    float* input = args.state + c * args.taps;
    for (int64_t row = 0; row < args.rows; ++row) {
      std::copy(input + 1, input + args.taps, input);
      input[args.taps - 1] = args.x[row * args.x_stride + c];
      auto sum = hn::Set(d, args.bias == nullptr ? 0.0f : args.bias[c]);
      for (int64_t j = 0; j < args.taps; ++j) {
        sum = hn::MulAdd(hn::Set(d, args.weight[j * args.weight_stride + c]),
                         hn::Set(d, input[j]), sum);
      }
      if constexpr (kSilu) sum = SiluOf(d, sum);
      args.y[row * args.y_stride + c] = hn::GetLane(sum);
    }
  }
}

template <bool kSilu>
void Convolve(const ShortConvArgs& args) {
  switch (args.taps) {
    case 2:
      return ConvolveFew<2, kSilu>(args);
    case 3:
      return ConvolveFew<3, kSilu>(args);
    case 4:
      return ConvolveFew<4, kSilu>(args);
    default:
      return ConvolveAny<kSilu>(args);
  }
}

void ShortConv(const ShortConvArgs& args) {
  args.silu ? Convolve<true>(args) : Convolve<false>(args);
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise {

HWY_EXPORT(ShortConv);

void ShortConv(const ShortConvArgs& args) {
  CHECK(args.taps >= 1 && args.taps <= kMaxConvTaps);
  CHECK(args.rows >= 1 && args.channels >= 0);
  HWY_DYNAMIC_DISPATCH(ShortConv)(args);
}

}  // namespace reprise
#endif  // HWY_ONCE
