// What the machine can do at best, measured in the same run as the figures
// that are compared with it.
#ifndef TOOLS_BENCH_LIMITS_H_
#define TOOLS_BENCH_LIMITS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/base/large_buffer.h"
#include "engine/kernels/linear.h"

namespace reprise::bench {

// On the monotonic clock.
inline double NowSeconds() { return 1e-9 * Clock::Real().MonotonicNs(); }

// Memory that the system would give without swapping, in bytes; 0 if it does
// not say.
int64_t AvailableMemory();
// Memory of this process, in bytes.
int64_t ResidentMemory();

// The middle one; of none, a bug.
double Median(std::vector<double> values);

// An array that the team of threads reads over and over, in huge pages, as
// weights are: every cache line is loaded, as fast as memory delivers.
class MemoryReader {
 public:
  // Arrays are as large as what they stand for, up to this many bytes, which
  // are beyond the caches.
  static constexpr int64_t kMostBytes = int64_t{1} << 30;

  explicit MemoryReader(int64_t bytes);

  // Reads it all, a small one several times, and returns bytes per second.
  double Read();

 private:
  static constexpr int64_t kSumsApart = 8;  // a cache line

  int64_t buffer_bytes() const;

  LargeBuffer buffer_;
  std::vector<int64_t> sums_;  // of each thread
};

// What one weight type and the present number of threads reach.
struct MachineLimits {
  static constexpr int64_t kMatmulRows = 512;

  // Takes some two seconds. Fails as Linear::Create does.
  static absl::StatusOr<MachineLimits> Measure(WeightType type,
                                               int64_t weight_bytes);

  // Bytes per second of a MemoryReader, beyond the caches and of as many bytes
  // as the weights. They change while a machine runs, so what is compared with
  // them has a reader of its own.
  double memory_speed = 0;
  double weights_speed = 0;
  // Operations per second of the best packed matmul at 512 rows, over a few
  // square and oblong shapes.
  double matmul_rate = 0;
};

}  // namespace reprise::bench

#endif  // TOOLS_BENCH_LIMITS_H_
