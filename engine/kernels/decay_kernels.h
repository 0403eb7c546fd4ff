// The decay family of state recurrences. Per head, with key dimension K and
// value dimension V:
//
//   S_t = Diag(w_t) S_{t-1} + k_t v_t^T
//   o_t = scale S_t^T q_t                                            after, or
//   o_t = scale (S_{t-1} + Diag(u) k_t v_t^T)^T q_t       before, with bonus u
//
// w = 1 is linear attention (Katharopoulos et al. 2020, equations 18 to 20),
// which may divide o_t by what the keys sum up to:
//
//   z_t = z_{t-1} + k_t     o_t = scale S_t^T q_t / (scale q_t . z_t + epsilon)
//
// One w a head is retention (constant; Sun et al. 2023) and Mamba-2 (Dao and
// Gu 2024); one w a key channel is GLA (Yang et al. 2024) and, with the bonus,
// RWKV-5 and 6 (Peng et al. 2024). q and k come with the feature map applied.
#ifndef ENGINE_KERNELS_DECAY_KERNELS_H_
#define ENGINE_KERNELS_DECAY_KERNELS_H_

#include <cstdint>

#include "engine/kernels/state_kernels.h"

namespace reprise {

enum class Decay { kNone, kPerHead, kPerChannel };

// Some heads of one session and their next rows. Row r of head h of q starts at
// q + r * q_stride + (h / heads_per_q) * key_dim; k alike; v alike with
// value_dim; o at o + r * o_stride + h * value_dim.
struct DecayArgs {
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
  int64_t heads_per_q = 1;  // neighbours that share their queries
  int64_t heads_per_k = 1;
  int64_t heads_per_v = 1;
  int64_t key_dim = 0;  // 1..kMaxKeyDim
  int64_t value_dim = 0;
  float scale = 1;
  // What row r of head h of v is multiplied with: v_scale[r * v_scale_stride +
  // h]; null: 1.
  const float* v_scale = nullptr;
  int64_t v_scale_stride = 0;

  // The decay, in 0..1, itself, not its logarithm. kPerHead: of row r and head
  // h at w[r * w_stride + h]; kPerChannel: laid out as k. A stride of 0 makes
  // it the same in every row.
  Decay decay = Decay::kNone;
  const float* w = nullptr;
  int64_t w_stride = 0;
  // [heads, key_dim]: read before the update, with this bonus. kPerChannel
  // only; null: read after the update.
  const float* bonus = nullptr;

  // Divide by (scale q . z + epsilon). kNone only.
  bool normalize = false;
  float epsilon = 0;

  float* s = nullptr;  // [heads, key_dim, value_dim], updated
  float* z = nullptr;  // [heads, key_dim], updated; null unless normalize
};

// The recurrent form, row after row: for decoding, and for tiles of one row.
void DecayRecurrent(const DecayArgs& args);

// The chunked parallel form over one tile: o = (mask(q k^T)) v + q S with the
// decays between, then S and z advance. Agrees with the recurrent form to
// rounding, however strong the decay: it multiplies decays up, step by step,
// and never divides by one. The result of a head depends on nothing but its
// arguments.
void DecayChunk(const DecayArgs& args);

}  // namespace reprise

#endif  // ENGINE_KERNELS_DECAY_KERNELS_H_
