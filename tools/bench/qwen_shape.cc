// Qwen3.5's text part in Hugging Face's layout: gated DeltaNet, and softmax
// attention in every fourth layer.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/bench/shapes.h"

namespace reprise::bench {
namespace {

constexpr int64_t kInterval = 4;
constexpr int64_t kQwenTaps = 4;
constexpr int64_t kLinearHeadDim = 128;
constexpr int64_t kHeadDim = 256;

struct QwenWidths {
  explicit QwenWidths(int64_t width)
      : d(width),
        linear_heads(width / 64),
        heads(width / 128),
        kv_heads(std::max<int64_t>(1, width / 512)),
        mlp(width * 7 / 2) {}

  int64_t d;
  int64_t linear_heads;  // of keys and of values
  int64_t heads;
  int64_t kv_heads;
  int64_t mlp;
};

void AddQwenLinear(const std::string& attn, const QwenWidths& w,
                   TensorList& tensors) {
  const int64_t inner = w.linear_heads * kLinearHeadDim;
  tensors.UniformF32(attn + "dt_bias", {w.linear_heads}, -6.9f, -2.25f);
  tensors.UniformF32(attn + "A_log", {w.linear_heads}, 0, 2.77f);
  tensors.Normal(attn + "conv1d.weight", {3 * inner, 1, kQwenTaps}, 0, 0.5f);
  tensors.Norm(attn + "norm.weight", kLinearHeadDim);
  tensors.Matrix(attn + "out_proj.weight", w.d, inner);
  tensors.Matrix(attn + "in_proj_qkv.weight", 3 * inner, w.d);
  tensors.Matrix(attn + "in_proj_z.weight", inner, w.d);
  tensors.Matrix(attn + "in_proj_b.weight", w.linear_heads, w.d);
  tensors.Matrix(attn + "in_proj_a.weight", w.linear_heads, w.d);
}

void AddQwenAttention(const std::string& attn, const QwenWidths& w,
                      TensorList& tensors) {
  const int64_t queries = w.heads * kHeadDim;
  const int64_t keys = w.kv_heads * kHeadDim;
  tensors.Matrix(attn + "q_proj.weight", 2 * queries, w.d);  // and the gate
  tensors.Matrix(attn + "k_proj.weight", keys, w.d);
  tensors.Matrix(attn + "v_proj.weight", keys, w.d);
  tensors.Matrix(attn + "o_proj.weight", w.d, queries);
  tensors.Norm(attn + "q_norm.weight", kHeadDim, /*mean=*/0);
  tensors.Norm(attn + "k_norm.weight", kHeadDim, /*mean=*/0);
}

nlohmann::ordered_json QwenShapeConfig(const ShapeSize& size,
                                       const QwenWidths& w) {
  std::vector<std::string> types;
  for (int64_t i = 0; i < size.layers; ++i) {
    types.push_back((i + 1) % kInterval == 0 ? "full_attention"
                                             : "linear_attention");
  }
  return {{"model_type", "qwen3_5_text"},
          {"architectures", {"Qwen3_5ForCausalLM"}},
          {"hidden_size", w.d},
          {"num_hidden_layers", size.layers},
          {"layer_types", types},
          {"full_attention_interval", kInterval},
          {"linear_conv_kernel_dim", kQwenTaps},
          {"linear_key_head_dim", kLinearHeadDim},
          {"linear_num_key_heads", w.linear_heads},
          {"linear_num_value_heads", w.linear_heads},
          {"linear_value_head_dim", kLinearHeadDim},
          {"num_attention_heads", w.heads},
          {"num_key_value_heads", w.kv_heads},
          {"head_dim", kHeadDim},
          {"attention_bias", false},
          {"attn_output_gate", true},
          {"rope_parameters",
           {{"rope_type", "default"},
            {"rope_theta", 10'000'000.0},
            {"partial_rotary_factor", 0.25}}},
          {"max_position_embeddings", 262144},
          {"hidden_act", "silu"},
          {"intermediate_size", w.mlp},
          {"rms_norm_eps", 1e-6},
          {"tie_word_embeddings", true},
          {"vocab_size", size.vocab}};
}

}  // namespace

ModelShape QwenHybridShape(const ShapeSize& size) {
  const QwenWidths w(size.width);
  ModelShape shape;
  shape.config = QwenShapeConfig(size, w);
  TensorList tensors;
  tensors.Matrix("model.embed_tokens.weight", size.vocab, w.d);
  for (int64_t i = 0; i < size.layers; ++i) {
    const std::string layer = absl::StrCat("model.layers.", i, ".");
    // The model adds 1 to the weights of all norms but those of linear layers.
    tensors.Norm(layer + "input_layernorm.weight", w.d, /*mean=*/0);
    if ((i + 1) % kInterval == 0) {
      AddQwenAttention(layer + "self_attn.", w, tensors);
    } else {
      AddQwenLinear(layer + "linear_attn.", w, tensors);
    }
    tensors.Norm(layer + "post_attention_layernorm.weight", w.d, /*mean=*/0);
    tensors.Matrix(layer + "mlp.gate_proj.weight", w.mlp, w.d);
    tensors.Matrix(layer + "mlp.up_proj.weight", w.mlp, w.d);
    tensors.Matrix(layer + "mlp.down_proj.weight", w.d, w.mlp);
  }
  tensors.Norm("model.norm.weight", w.d, /*mean=*/0);
  shape.tensors = tensors.Take();
  return shape;
}

}  // namespace reprise::bench
