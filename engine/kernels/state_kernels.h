// Sizes that all state recurrences share. A kernel is what a mixer does to one
// session's state, in one fused pass that reads and writes the state once;
// decay_kernels.h has the decay family.
#ifndef ENGINE_KERNELS_STATE_KERNELS_H_
#define ENGINE_KERNELS_STATE_KERNELS_H_

#include <cstdint>

namespace reprise {

// Rows of a tile, the unit of prefill: the chunked form turns it into small
// matmuls. 64 rows of 64 floats (16 KB) for q, k and v fit the L1 and L2 caches
// together with one head's state.
inline constexpr int64_t kTileRows = 64;

// Largest feature dimension the kernels take (their scratch is on the stack).
inline constexpr int64_t kMaxKeyDim = 1024;

}  // namespace reprise

#endif  // ENGINE_KERNELS_STATE_KERNELS_H_
