// What the engine takes for the work of a server: decoding, prefilling, long
// conversations, putting sessions away and back.
#ifndef TOOLS_BENCH_ENGINE_BENCH_H_
#define TOOLS_BENCH_ENGINE_BENCH_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"

namespace reprise::bench {

struct BenchOptions {
  std::vector<int64_t> decode_sessions = {1, 4, 16, 64};
  std::vector<int64_t> prefill_tokens = {512, 2048};
  std::vector<int64_t> positions = {100, 100'000};
  double seconds = 1.0;  // of measuring for each figure
};

// One figure beside its limit.
struct Figure {
  std::string name;
  double value = 0;
  std::string unit;
  double limit = 0;  // in the same unit; 0 = no limit stated
  std::string limited_by;
};

// The limits of the machine, measured in the same run.
struct MachineLimits {
  double read_bytes_per_s = 0;        // beyond the caches
  double model_read_bytes_per_s = 0;  // as many bytes as the model's weights
  double matmul_flops_per_s = 0;      // of the model's weight type, 512 rows
};

// Measures the limits for `engine`.
absl::StatusOr<MachineLimits> MeasureLimits(const Engine& engine);

// Runs everything in `options`, calling `done` with each figure as it is
// there.
absl::Status RunEngineBench(Engine& engine, const MachineLimits& limits,
                            const BenchOptions& options,
                            const std::function<void(const Figure&)>& done);

}  // namespace reprise::bench

#endif  // TOOLS_BENCH_ENGINE_BENCH_H_
