// The state recurrences: what a mixer does to one session's state, in one
// fused pass that reads and writes the state once.
//
// Decay family with w = 1 (Katharopoulos et al. 2020, equations 18 to 20), per
// head, with key dimension K and value dimension V:
//
//   S_t = S_{t-1} + k_t v_t^T     z_t = z_{t-1} + k_t
//   o_t = scale q_t^T S_t / (scale q_t . z_t + epsilon)   (or undivided)
//
// q and k come with the feature map applied.
#ifndef ENGINE_KERNELS_STATE_KERNELS_H_
#define ENGINE_KERNELS_STATE_KERNELS_H_

#include <cstdint>

namespace reprise {

// Rows of a tile, the unit of prefill: the chunked form turns it into small
// matmuls. 64 rows of 64 floats (16 KB) for q, k and v fit the L1 and L2 caches
// together with one head's state.
inline constexpr int64_t kTileRows = 64;

// Some heads of one session and their next rows. Row r of head h of q starts at
// q + r * q_stride + h * key_dim; of k at k + r * k_stride +
// (h / heads_per_kv) * key_dim; v alike with value_dim; o as q with value_dim.
struct LinearAttentionArgs {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  float* o = nullptr;
  int64_t q_stride = 0;
  int64_t k_stride = 0;
  int64_t v_stride = 0;
  int64_t o_stride = 0;
  int64_t rows = 0;        // 1..kTileRows
  int64_t first_head = 0;  // the heads [first_head, last_head) are computed
  int64_t last_head = 0;
  int64_t heads_per_kv = 1;
  int64_t key_dim = 0;  // 1..kMaxKeyDim
  int64_t value_dim = 0;
  float scale = 1;
  bool normalize = false;  // divide by (scale q . z + epsilon)
  float epsilon = 0;
  float* s = nullptr;  // [heads, key_dim, value_dim], updated
  float* z = nullptr;  // [heads, key_dim], updated; null unless normalize
};

// Largest feature dimension the kernels take (their scratch is on the stack).
inline constexpr int64_t kMaxKeyDim = 1024;

// The recurrent form, row after row: for decoding, and for tiles of one row.
void LinearAttentionRecurrent(const LinearAttentionArgs& args);

// The chunked parallel form over one tile: o = (mask(q k^T)) v + q S, then S
// and z advance. Agrees with the recurrent form to rounding. The result of a
// head depends on nothing but its arguments.
void LinearAttentionChunk(const LinearAttentionArgs& args);

}  // namespace reprise

#endif  // ENGINE_KERNELS_STATE_KERNELS_H_
