// Shapes in the layout of fla-org/flash-linear-attention.
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/bench/shapes.h"

namespace reprise::bench {
namespace {

// Widths are multiples of it where nothing else says so.
constexpr int64_t kFlaMultiple = 64;

// The gated MLP of 8/3 the width keeps the parameters of a plain one of 4.
int64_t FlaMlpWidth(int64_t width) {
  return (width * 8 / 3 + kFlaMultiple - 1) / kFlaMultiple * kFlaMultiple;
}

void AddFlaMlp(const std::string& layer, int64_t width, TensorList& tensors) {
  const int64_t inner = FlaMlpWidth(width);
  tensors.Norm(layer + "mlp_norm.weight", width);
  tensors.Matrix(layer + "mlp.gate_proj.weight", inner, width);
  tensors.Matrix(layer + "mlp.up_proj.weight", inner, width);
  tensors.Matrix(layer + "mlp.down_proj.weight", width, inner);
}

nlohmann::ordered_json FlaShapeConfig(const char* type, const char* classname,
                                      const ShapeSize& size) {
  return {{"model_type", type},
          {"architectures", {classname}},
          {"hidden_size", size.width},
          {"num_hidden_layers", size.layers},
          {"hidden_act", "swish"},
          {"intermediate_size", FlaMlpWidth(size.width)},
          {"norm_eps", 1e-6},
          {"attn", nullptr},
          {"tie_word_embeddings", false},
          {"vocab_size", size.vocab}};
}

}  // namespace

// Heads of 64, elu + 1 with the normaliser.
ModelShape LinearAttentionShape(const ShapeSize& size) {
  constexpr int64_t kHeadDim = 64;
  ModelShape shape;
  shape.config =
      FlaShapeConfig("linear_attn", "LinearAttentionForCausalLM", size);
  shape.config.update({{"num_heads", size.width / kHeadDim},
                       {"num_kv_heads", nullptr},
                       {"expand_k", 1.0},
                       {"expand_v", 1.0},
                       {"feature_map", "elu"},
                       {"tie_feature_map_qk", false},
                       {"norm_q", false},
                       {"norm_k", false},
                       {"norm_feature_map", true}});
  const int64_t d = size.width;
  TensorList tensors;
  tensors.Matrix("model.embeddings.weight", size.vocab, d);
  for (int64_t i = 0; i < size.layers; ++i) {
    const std::string layer = absl::StrCat("model.layers.", i, ".");
    tensors.Norm(layer + "attn_norm.weight", d);
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      tensors.Matrix(absl::StrCat(layer, "attn.", name, ".weight"), d, d);
    }
    tensors.Norm(layer + "attn.norm.weight", kHeadDim);
    AddFlaMlp(layer, d, tensors);
  }
  tensors.Norm("model.norm.weight", d);
  tensors.Matrix("lm_head.weight", size.vocab, d);
  shape.tensors = tensors.Take();
  return shape;
}

// Keys of 3/4 the width in heads of 128, values twice as wide.
ModelShape GatedDeltaNetShape(const ShapeSize& size) {
  constexpr int64_t kHeadDim = 128;
  constexpr int64_t kTaps = 4;
  const int64_t d = size.width;
  const int64_t heads = d * 3 / 4 / kHeadDim;
  const int64_t keys = heads * kHeadDim;
  const int64_t values = 2 * keys;
  ModelShape shape;
  shape.config =
      FlaShapeConfig("gated_deltanet", "GatedDeltaNetForCausalLM", size);
  shape.config.update({{"num_heads", heads},
                       {"num_v_heads", nullptr},
                       {"head_dim", kHeadDim},
                       {"expand_v", 2.0},
                       {"use_gate", true},
                       {"use_short_conv", true},
                       {"conv_size", kTaps},
                       {"allow_neg_eigval", false}});
  TensorList tensors;
  tensors.Matrix("model.embeddings.weight", size.vocab, d);
  for (int64_t i = 0; i < size.layers; ++i) {
    const std::string layer = absl::StrCat("model.layers.", i, ".");
    const std::string attn = layer + "attn.";
    tensors.Norm(layer + "attn_norm.weight", d);
    // A decay of exp(-exp(a_log) softplus(dt_bias + ...)): as fla initialises
    // them, 1 to 16 times 0.001 to 0.1.
    tensors.UniformF32(attn + "A_log", {heads}, 0, 2.77f);
    tensors.UniformF32(attn + "dt_bias", {heads}, -6.9f, -2.25f);
    tensors.Matrix(attn + "q_proj.weight", keys, d);
    tensors.Matrix(attn + "k_proj.weight", keys, d);
    tensors.Matrix(attn + "v_proj.weight", values, d);
    tensors.Matrix(attn + "a_proj.weight", heads, d);
    tensors.Matrix(attn + "b_proj.weight", heads, d);
    tensors.Matrix(attn + "g_proj.weight", values, d);
    tensors.Normal(attn + "q_conv1d.weight", {keys, 1, kTaps}, 0, 0.5f);
    tensors.Normal(attn + "k_conv1d.weight", {keys, 1, kTaps}, 0, 0.5f);
    tensors.Normal(attn + "v_conv1d.weight", {values, 1, kTaps}, 0, 0.5f);
    tensors.Norm(attn + "o_norm.weight", 2 * kHeadDim);
    tensors.Matrix(attn + "o_proj.weight", d, values);
    AddFlaMlp(layer, d, tensors);
  }
  tensors.Norm("model.norm.weight", d);
  tensors.Matrix("lm_head.weight", size.vocab, d);
  shape.tensors = tensors.Take();
  return shape;
}

}  // namespace reprise::bench
