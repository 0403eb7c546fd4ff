// Weights on their way into the layout that kernels read. A part of linear.cc,
// which alone includes this.
#ifndef ENGINE_KERNELS_PACK_WEIGHTS_H_
#define ENGINE_KERNELS_PACK_WEIGHTS_H_

#include <cstdint>
#include <dnnl.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/large_buffer.h"
#include "engine/kernels/linear.h"
#include "engine/kernels/matmul.h"

namespace reprise {

struct PackedWeights {
  LargeBuffer bytes;  // in the layout
  // Of 8-bit weights: what makes numbers of their sums.
  std::vector<float> scales;  // [out]
  // What a source shifted by 128 adds to each sum: 128 times the sum of the
  // column's weights. Empty for our own kernels, which are told the numbers
  // themselves.
  std::vector<int32_t> offsets;  // [out]
};

// Rounds W to `type` and lays it out as the kernels read it. Fails as `rows`
// does; throws what oneDNN throws.
absl::StatusOr<PackedWeights> PackWeights(const LinearShape& shape,
                                          const ShapeKernels& kernels,
                                          WeightType type, ReadRows rows,
                                          PackBuffer& buffer);

// The layout in words that name every property of it. Empty for a layout that
// is more than blocks of numbers.
std::string LayoutText(const dnnl::memory::desc& layout);

}  // namespace reprise

#endif  // ENGINE_KERNELS_PACK_WEIGHTS_H_
