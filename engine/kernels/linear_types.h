// What goes into a Linear and what it keeps: plain types of linear.h.
#ifndef ENGINE_KERNELS_LINEAR_TYPES_H_
#define ENGINE_KERNELS_LINEAR_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/base/large_buffer.h"

namespace reprise {

// W is [out, in].
struct LinearShape {
  int64_t in = 0;
  int64_t out = 0;
};

// Writes rows [first, first + count) of W, [count, in], to `numbers`. Called
// with rows in ascending order, each once.
using ReadRows = absl::FunctionRef<absl::Status(int64_t first, int64_t count,
                                                float* numbers)>;

// Memory that packing works in: the largest matrix, in the type it is packed
// in, and some of its rows in f32. Kept for the next matrix.
struct PackBuffer {
  LargeBuffer plain;
  LargeBuffer rows;
};

// What packing made of a matrix, to be kept beside its weights.
struct StoredLinear {
  std::string layout;  // of the weights; empty: they are not to be kept
  size_t weight_bytes = 0;
  std::string others;  // bias and scales
};

}  // namespace reprise

#endif  // ENGINE_KERNELS_LINEAR_TYPES_H_
