// The causal depthwise convolution over a few tokens that precedes many
// recurrences: every channel for itself,
//
//   y_t = sum_j weight[j] x_{t - W + 1 + j} + bias     (the last tap is x_t)
#ifndef ENGINE_KERNELS_SHORT_CONV_KERNEL_H_
#define ENGINE_KERNELS_SHORT_CONV_KERNEL_H_

#include <cstdint>

namespace reprise {

// Widest convolution the kernel takes; published models have 2 to 4 taps.
inline constexpr int64_t kMaxConvTaps = 16;

// Some channels of one session and their next rows.
struct ShortConvArgs {
  const float* x = nullptr;  // row r, channel c: x[r * x_stride + c]
  float* y = nullptr;        // likewise; may be x
  int64_t x_stride = 0;
  int64_t y_stride = 0;
  int64_t rows = 0;
  int64_t channels = 0;
  int64_t taps = 0;               // W, 1..kMaxConvTaps
  const float* weight = nullptr;  // tap j, channel c: [j * weight_stride + c]
  int64_t weight_stride = 0;
  const float* bias = nullptr;  // [channels], or null
  bool silu = false;            // of y, afterwards
  // [channels, taps]: the latest inputs, oldest first; updated.
  float* state = nullptr;
};

// A number of y has the same bits however rows and channels are split among
// calls.
void ShortConv(const ShortConvArgs& args);

}  // namespace reprise

#endif  // ENGINE_KERNELS_SHORT_CONV_KERNEL_H_
