// The selective scan of Mamba (Gu and Dao 2023): a diagonal recurrence for
// every channel, whose decay and input the token chooses.
//
//   h_t = exp(dt_t A) h_{t-1} + (dt_t x_t) B_t     y_t = C_t . h_t + D x_t
//
// per channel, with h, A, B_t and C_t of N numbers.
#ifndef ENGINE_KERNELS_SELECTIVE_SCAN_H_
#define ENGINE_KERNELS_SELECTIVE_SCAN_H_

#include <cstdint>

namespace reprise {

// Some channels of one session and their next rows. Channel c of row r of x is
// x[r * x_stride + c]; of dt and y alike.
struct SelectiveScanArgs {
  const float* x = nullptr;
  const float* dt = nullptr;
  const float* b = nullptr;  // row r at b + r * bc_stride, [state_size]
  const float* c = nullptr;
  float* y = nullptr;  // may be x
  int64_t x_stride = 0;
  int64_t dt_stride = 0;
  int64_t bc_stride = 0;
  int64_t y_stride = 0;
  int64_t rows = 0;
  int64_t channels = 0;
  int64_t state_size = 0;
  // [channels, state_size]: A / ln(2), so that exp(dt A) = 2^(dt a); not above
  // 0.
  const float* a = nullptr;
  const float* d = nullptr;  // [channels]
  float* h = nullptr;        // [channels, state_size], updated
};

// The bits do not depend on how rows and channels are split among calls.
void SelectiveScan(const SelectiveScanArgs& args);

}  // namespace reprise

#endif  // ENGINE_KERNELS_SELECTIVE_SCAN_H_
