// Descriptions of the mixers of RWKV-4, 5 and 6. `x` is a token's input and
// `before` its predecessor's.
#ifndef ENGINE_MODEL_RWKV_DESCRIPTIONS_H_
#define ENGINE_MODEL_RWKV_DESCRIPTIONS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "engine/model/rwkv7_description.h"
#include "engine/model/tensor_ref.h"

namespace reprise {

// What a projection reads: x + (before - x) share, with d_model shares.
struct RwkvMix {
  ShapedRef share;
  int64_t first = 0;    // of the tensor's numbers, where it has more
  bool of_now = false;  // the tensor holds 1 - share
};

// The projections in the order of everything below.
enum RwkvPart : size_t { kRwkvR, kRwkvW, kRwkvK, kRwkvV, kRwkvG, kRwkvParts };

// RWKV-6: the token chooses what is added to each part's share:
//
//   t = tanh(down(x + (before - x) mix))     added[part] = up[part] t[part]
struct RwkvDynamicMixDescription {
  RwkvMix mix;
  int64_t rank = 0;  // of each part
  LinearRef down;    // [kRwkvParts * rank, d_model]
  // [d_model, kRwkvParts * rank] or, if not by_output, [kRwkvParts, rank,
  // d_model].
  TensorRef up;
  bool by_output = true;
  std::array<int64_t, kRwkvParts> places = {};  // of the parts, in both
};

// The time mix of RWKV-5 and 6 (Peng et al. 2024), heads of
//
//   o = r (S + Diag(bonus) k v^T)     S = Diag(exp(-exp(w))) S + k v^T
//   y = o_proj(norm(o) * silu(gate))
struct RwkvTimeMixDescription {
  static constexpr std::string_view kKind = "rwkv_time_mix";

  int64_t heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  // Without a dynamic mix or a decay of the token's choice, parts W and G may
  // have none.
  std::array<RwkvMix, kRwkvParts> mixes;
  std::optional<RwkvDynamicMixDescription> dynamic_mix;
  LinearRef r;
  LinearRef k;
  LinearRef v;
  LinearRef gate;  // none: ungated
  LinearRef o;
  // w: chosen by the token (with tanh within), else numbers of each channel or
  // of each head.
  std::optional<LoraDescription> decay_lora;
  ShapedRef decay;
  ShapedRef bonus;                 // of each channel or of each head
  bool bonus_exponential = false;  // exp of the tensor
  // Of each head's output, LayerNorm with heads * value_dim weights and biases.
  float output_epsilon = 0;
  TensorRef output_weight;
  TensorRef output_bias;
};

// The time mix of RWKV-4 (Peng et al. 2023): every channel's weighted mean of
// all its values so far, with weights exp(k) that decay by exp(-exp(decay)) a
// token, and exp(bonus + k) for the token itself; times sigmoid(r).
struct Rwkv4TimeMixDescription {
  static constexpr std::string_view kKind = "rwkv4_time_mix";

  int64_t width = 0;
  RwkvMix mix_k;
  RwkvMix mix_v;
  RwkvMix mix_r;
  LinearRef k;
  LinearRef v;
  LinearRef r;
  LinearRef o;
  TensorRef decay;  // [width]
  TensorRef bonus;  // [width]
};

// The channel mix of all three: sigmoid(receptance) * value(relu(key)^2).
struct RwkvChannelMixDescription {
  static constexpr std::string_view kKind = "rwkv_channel_mix";

  int64_t width = 0;
  RwkvMix mix_k;
  RwkvMix mix_r;
  LinearRef key;
  LinearRef value;
  LinearRef receptance;
};

}  // namespace reprise

#endif  // ENGINE_MODEL_RWKV_DESCRIPTIONS_H_
