// What the machine can do at best, measured in the same run as the figures
// that are compared with it.
#ifndef TOOLS_BENCH_LIMITS_H_
#define TOOLS_BENCH_LIMITS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/kernels/linear.h"

namespace reprise::bench {

// On the monotonic clock.
inline double NowSeconds() { return 1e-9 * Clock::Real().MonotonicNs(); }

// Bytes per second that the team of threads reads from an array of `bytes`
// bytes, read over and over: the best of several passes. Blocks for about a
// third of a second.
double MeasureReadSpeed(int64_t bytes);

// Floating-point operations per second of the best packed matmul of `type` at
// `rows` rows, over a few square and oblong shapes. Blocks for about a second.
absl::StatusOr<double> MeasureMatmulRate(WeightType type, int64_t rows);

}  // namespace reprise::bench

#endif  // TOOLS_BENCH_LIMITS_H_
