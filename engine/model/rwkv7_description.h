// RWKV-7 (Peng et al. 2025). Plain data.
#ifndef ENGINE_MODEL_RWKV7_DESCRIPTION_H_
#define ENGINE_MODEL_RWKV7_DESCRIPTION_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/model/tensor_ref.h"

namespace reprise {

// Numbers that a file may keep in any shape.
struct ShapedRef {
  TensorRef tensor;
  std::vector<int64_t> shape;
};

// up(activation(down(x))), through `rank` numbers.
struct LoraDescription {
  int64_t rank = 0;
  LinearRef down;
  LinearRef up;
};

// How much of the predecessor each projection sees, in the order r, w, k, v, a,
// g: x + (predecessor - x) mix. Six vectors, or one tensor with six rows.
inline constexpr int64_t kRwkv7Mixes = 6;

// The time mix.
struct Rwkv7Description {
  static constexpr std::string_view kKind = "rwkv7";

  int64_t heads = 0;
  int64_t head_dim = 0;  // heads * head_dim is d_model
  std::vector<ShapedRef> mixes;
  LinearRef r;
  LinearRef k;
  LinearRef v;
  LinearRef o;
  LoraDescription w;  // tanh within; the decay is exp(-e^-0.5 sigmoid(it))
  LoraDescription a;
  LoraDescription g;  // sigmoid within
  // How much of the first layer's value is mixed in; the first layer has none,
  // and keeps its values for the others.
  std::optional<LoraDescription> first_value;
  ShapedRef k_k;
  ShapedRef k_a;
  ShapedRef r_k;
  float key_epsilon = 0;  // of k / sqrt(sum k^2 + epsilon), per head
  // Of each head's output, LayerNorm with d_model weights and biases.
  float output_epsilon = 0;
  TensorRef output_weight;
  TensorRef output_bias;
};

// The channel mix: value(relu(key(x + (predecessor - x) mix))^2).
struct Rwkv7FfnDescription {
  static constexpr std::string_view kKind = "rwkv7_ffn";

  int64_t width = 0;
  ShapedRef mix;
  LinearRef key;
  LinearRef value;
};

}  // namespace reprise

#endif  // ENGINE_MODEL_RWKV7_DESCRIPTION_H_
