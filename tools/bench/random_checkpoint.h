// Checkpoints of a named shape with random weights, so that the engine can be
// measured on sizes for which no model is at hand.
#ifndef TOOLS_BENCH_RANDOM_CHECKPOINT_H_
#define TOOLS_BENCH_RANDOM_CHECKPOINT_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace reprise::bench {

// The names that WriteRandomCheckpoint knows.
std::vector<std::string> ShapeNames();

// Writes config.json and model.safetensors (bf16) of the shape into `dir`,
// which must exist. Weights are normal with variance 1 / inputs and depend on
// the shape alone. InvalidArgument, listing the names, for an unknown shape;
// Unavailable if a file cannot be written.
absl::Status WriteRandomCheckpoint(std::string_view shape,
                                   const std::string& dir);

}  // namespace reprise::bench

#endif  // TOOLS_BENCH_RANDOM_CHECKPOINT_H_
