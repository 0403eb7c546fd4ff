// Softmax attention. Plain data.
#ifndef ENGINE_MODEL_SOFTMAX_ATTENTION_DESCRIPTION_H_
#define ENGINE_MODEL_SOFTMAX_ATTENTION_DESCRIPTION_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "engine/model/rotary_scaling.h"
#include "engine/model/tensor_ref.h"

namespace reprise {

// Causal softmax attention over all tokens of a session, or a window of them:
//
//   y = o(softmax(scale rotary(norm(q)) . rotary(norm(k))) v * sigmoid(gate))
struct SoftmaxAttentionDescription {
  static constexpr std::string_view kKind = "softmax_attention";

  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads
  int64_t head_dim = 0;  // 1..kMaxHeadDim
  // [heads * head_dim, d_model]; with output_gate [heads * 2 * head_dim,
  // d_model], for every head first its query and then its gate.
  LinearRef q;
  LinearRef k;
  LinearRef v;
  LinearRef o;
  bool output_gate = false;
  // Per head, over head_dim.
  std::optional<NormDescription> q_norm;
  std::optional<NormDescription> k_norm;
  // The first `rotary_dim` numbers of a head, an even number, turn with the
  // position, pairs half of them apart; 0: none do. Pair i makes
  // rotary_base^(-2 i / rotary_dim) / (2 pi) turns per token, or what the
  // scaling makes of that.
  int64_t rotary_dim = 0;
  double rotary_base = 10000;
  RotaryScaling rotary_scaling;
  int64_t window = 0;  // a token sees itself and the window - 1 before; 0: all
  float scale = 1;     // of the scores
};

// Far above any published window.
inline constexpr int64_t kMaxAttentionWindow = int64_t{1} << 24;

}  // namespace reprise

#endif  // ENGINE_MODEL_SOFTMAX_ATTENTION_DESCRIPTION_H_
