// Checkpoints of a named shape with random weights, as a folder that reprise
// and other programs load like any model's.
#ifndef TOOLS_BENCH_RANDOM_CHECKPOINT_H_
#define TOOLS_BENCH_RANDOM_CHECKPOINT_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "tools/bench/shapes.h"

namespace reprise::bench {

// Writes config.json, model.safetensors (bf16, some vectors f32) and, where the
// vocabulary is more than bytes, a tokenizer into `dir`, which must exist. All
// of it depends on the shape and its size alone. InvalidArgument as MakeShape;
// Unavailable if a file cannot be written.
absl::Status WriteRandomCheckpoint(std::string_view shape,
                                   const ShapeChange& change,
                                   const std::string& dir);

}  // namespace reprise::bench

#endif  // TOOLS_BENCH_RANDOM_CHECKPOINT_H_
