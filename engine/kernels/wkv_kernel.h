// RWKV-4's recurrence (Peng et al. 2023), channel by channel: a mean of the
// values weighted by exp(k), as numerator and denominator over exp(peak), so
// that no exponential overflows.
//
//   y_t = (exp(peak - p) num + exp(bonus + k - p) v) /
//         (exp(peak - p) den + exp(bonus + k - p)),   p = max(peak, bonus + k)
//
// and then num = exp(peak + decay - q) num + exp(k - q) v, den alike, with
// q = max(peak + decay, k), which is the new peak.
#ifndef ENGINE_KERNELS_WKV_KERNEL_H_
#define ENGINE_KERNELS_WKV_KERNEL_H_

#include <cstdint>

namespace reprise {

// Some channels of one session and their next rows, all of the same stride.
struct WkvArgs {
  const float* k = nullptr;
  const float* v = nullptr;
  float* y = nullptr;  // may be v
  int64_t stride = 0;
  int64_t rows = 0;
  int64_t channels = 0;
  const float* decay = nullptr;  // [channels], below 0
  const float* bonus = nullptr;  // [channels]
  // [channels] each, updated. A denominator of 0 is a new session, whose peak
  // does not count: it is 1 or more after the first row.
  float* numerator = nullptr;
  float* denominator = nullptr;
  float* peak = nullptr;
};

// The bits do not depend on how rows and channels are split among calls.
void Wkv(const WkvArgs& args);

}  // namespace reprise

#endif  // ENGINE_KERNELS_WKV_KERNEL_H_
