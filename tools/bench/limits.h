// What the machine can do at best, measured in the same run as the figures
// that are compared with it.
#ifndef TOOLS_BENCH_LIMITS_H_
#define TOOLS_BENCH_LIMITS_H_

#include <cstdint>
#include <map>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/kernels/linear.h"

namespace reprise::bench {

// On the monotonic clock.
inline double NowSeconds() { return 1e-9 * Clock::Real().MonotonicNs(); }

// Memory that the system would give without swapping, in bytes; 0 if it does
// not say.
int64_t AvailableMemory();
// Memory of this process, in bytes.
int64_t ResidentMemory();

// The limits for one weight type and the present number of threads. Every
// measurement takes a third of a second or a second, once.
class MachineLimits {
 public:
  // Arrays are as large as what they stand for, up to this many bytes, which
  // are beyond the caches.
  static constexpr int64_t kMostBytes = int64_t{1} << 30;
  static constexpr int64_t kMatmulRows = 512;

  // Fails as Linear::Create does.
  static absl::StatusOr<MachineLimits> Measure(WeightType type);

  // Bytes per second that the team of threads reads from an array of `bytes`
  // bytes, read over and over: the best of several passes, and of what was
  // measured for larger ones.
  double ReadSpeed(int64_t bytes);
  // Operations per second of the best packed matmul at 512 rows, over a few
  // square and oblong shapes.
  double matmul_rate() const { return matmul_rate_; }

 private:
  std::map<int64_t, double> read_speeds_;  // by bytes
  double matmul_rate_ = 0;
};

}  // namespace reprise::bench

#endif  // TOOLS_BENCH_LIMITS_H_
