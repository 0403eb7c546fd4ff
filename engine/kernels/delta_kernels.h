// The delta-rule recurrences: a step first takes from the state what it holds
// under a key, then writes. Per head, with key dimension K and value dimension
// V, S is [K, V] and one of
//
//   delta rule (Schlag et al. 2021), gated (Yang, Kautz and Hatamizadeh 2024):
//     u_t = beta_t (v_t - (decay_t S_{t-1})^T k_t)
//     S_t = decay_t S_{t-1} + k_t u_t^T
//
//   diagonal plus low rank (RWKV-7, Peng et al. 2025), decay_t [K]:
//     u_t = S_{t-1}^T a_t
//     S_t = Diag(decay_t) S_{t-1} + b_t u_t^T + k_t v_t^T
//
// and then o_t = scale S_t^T q_t. One call reads and writes S once.
#ifndef ENGINE_KERNELS_DELTA_KERNELS_H_
#define ENGINE_KERNELS_DELTA_KERNELS_H_

#include <cstdint>

#include "engine/kernels/state_kernels.h"  // kTileRows

namespace reprise {

// Numbers of every row and head: those of row r and head h begin at
// data + r * stride + h * (numbers of a head).
struct HeadRows {
  const float* data = nullptr;
  int64_t stride = 0;

  const float* At(int64_t row, int64_t head, int64_t per_head) const {
    return data + row * stride + head * per_head;
  }
};

// Some heads of one session and their next rows.
struct DeltaArgs {
  HeadRows q;  // [key_dim] of head h / heads_per_key, as are k, a and b
  HeadRows k;
  HeadRows v;  // [value_dim]
  // The decay, 0..1, itself, not its logarithm: one number a head for the delta
  // rule, where null means 1; [key_dim] where a and b are given.
  HeadRows decay;
  HeadRows beta;  // delta rule: one number a head
  HeadRows a;     // diagonal plus low rank: both; delta rule: null
  HeadRows b;
  float* o = nullptr;  // [value_dim] a head
  int64_t o_stride = 0;
  int64_t rows = 0;        // 1..kTileRows
  int64_t first_head = 0;  // the heads [first_head, last_head) are computed
  int64_t last_head = 0;
  int64_t heads_per_key = 1;  // 1 where a and b are given
  int64_t key_dim = 0;        // 1..kMaxDeltaKeyDim
  int64_t value_dim = 0;
  float scale = 1;
  float* s = nullptr;  // [heads, key_dim, value_dim], updated
};

// Largest key dimension the kernels take: a tile's keys and queries are kept
// on the stack, 256 KB at most. Published models have 64 to 256.
inline constexpr int64_t kMaxDeltaKeyDim = 256;

// The recurrent form, row after row: for decoding, and for tiles of one row.
void DeltaRecurrent(const DeltaArgs& args);

// The chunked form over one tile: the rows' u from a triangular system (the UT
// transform of Yang et al. 2024, "Parallelizing linear transformers with the
// delta rule over sequence length"), then matmuls. Agrees with the recurrent
// form to rounding, however strong the decay: no factor above 1 is ever
// formed. The result of a head depends on nothing but its arguments.
void DeltaChunk(const DeltaArgs& args);

}  // namespace reprise

#endif  // ENGINE_KERNELS_DELTA_KERNELS_H_
