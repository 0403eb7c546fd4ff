// Descriptions of the mixers whose state decays (engine/kernels/
// decay_kernels.h).
#ifndef ENGINE_MODEL_DECAY_DESCRIPTIONS_H_
#define ENGINE_MODEL_DECAY_DESCRIPTIONS_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/model/activation.h"
#include "engine/model/short_conv_description.h"
#include "engine/model/tensor_ref.h"

namespace reprise {

// What retention and gated linear attention share: projections, a norm for
// every head's output, its gate, and the output projection.
//
//   y = o(norm(heads) * silu(gate(x)))
struct DecayAttentionDescription {
  int64_t heads = 0;
  int64_t kv_heads = 0;   // divides heads
  int64_t key_dim = 0;    // per head
  int64_t value_dim = 0;  // per head
  LinearRef q;
  LinearRef k;
  LinearRef v;
  LinearRef gate;  // none: ungated
  LinearRef o;
  std::optional<Activation> activation;  // of queries and keys
  float scale = 1;
  NormDescription output_norm;  // per head, over value_dim
};

// Retention (Sun et al. 2023): rotary positions on queries and keys, and a
// decay of each head that is the same for every token.
struct RetentionDescription {
  static constexpr std::string_view kKind = "retention";

  DecayAttentionDescription attention;
  double rotary_base = 0;
  std::vector<float> decay;  // [heads], 0..1
};

// Gated linear attention (Yang et al. 2024): the tokens decide how much of each
// key channel is kept, by logsigmoid(up(down(x))) / normalizer.
struct GatedLinearAttentionDescription {
  static constexpr std::string_view kKind = "gated_linear_attention";

  DecayAttentionDescription attention;
  std::vector<ShortConvDescription> convs;  // of q, k and v, or none
  int64_t decay_rank = 0;
  LinearRef decay_down;  // [rank, d_model]
  LinearRef decay_up;    // [kv_heads * key_dim, rank]
  float decay_normalizer = 1;
  std::optional<float> min_log_decay;
};

}  // namespace reprise

#endif  // ENGINE_MODEL_DECAY_DESCRIPTIONS_H_
