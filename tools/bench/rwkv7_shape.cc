// RWKV-7 in the layout of fla-org/flash-linear-attention, which other programs
// convert from.
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/bench/shapes.h"

namespace reprise::bench {
namespace {

constexpr int64_t kRwkvHeadDim = 64;

// Of the low-rank maps, those of the 0.1B model.
constexpr int64_t kDecayRank = 64;
constexpr int64_t kStepRank = 64;
constexpr int64_t kValueRank = 32;
constexpr int64_t kGateRank = 128;

void AddRwkvLora(const std::string& name, int64_t width, int64_t rank,
                 TensorList& tensors) {
  tensors.Matrix(name + ".lora.0.weight", rank, width);
  tensors.Matrix(name + ".lora.2.weight", width, rank);
}

void AddRwkvNorm(const std::string& name, int64_t width, TensorList& tensors) {
  tensors.Norm(name + ".weight", width);
  tensors.Normal(name + ".bias", {width}, 0, 0.1f);
}

void AddTimeMix(const std::string& attn, int64_t d, bool first_layer,
                TensorList& tensors) {
  for (const char* letter : {"r", "w", "k", "v", "a", "g"}) {
    tensors.Uniform(absl::StrCat(attn, "x_", letter), {1, 1, d}, 0, 1);
  }
  tensors.Normal(attn + "k_k", {d}, 0.85f, 0.05f);
  tensors.Normal(attn + "k_a", {d}, 1, 0.05f);
  tensors.Normal(attn + "r_k", {d / kRwkvHeadDim, kRwkvHeadDim}, 0, 0.1f);
  for (const char* name : {"r_proj", "k_proj", "v_proj", "o_proj"}) {
    tensors.Matrix(absl::StrCat(attn, name, ".weight"), d, d);
  }
  // The decay is exp(-0.61 sigmoid(bias + ...)).
  AddRwkvLora(attn + "w_lora", d, kDecayRank, tensors);
  tensors.Uniform(attn + "w_lora.lora.2.bias", {d}, -6.5f, -0.5f);
  AddRwkvLora(attn + "a_lora", d, kStepRank, tensors);
  tensors.Normal(attn + "a_lora.lora.2.bias", {d}, 0, 0.1f);
  AddRwkvLora(attn + "g_lora", d, kGateRank, tensors);
  if (!first_layer) {
    AddRwkvLora(attn + "v_lora", d, kValueRank, tensors);
    tensors.Normal(attn + "v_lora.lora.2.bias", {d}, 1, 0.1f);
  }
  AddRwkvNorm(attn + "g_norm", d, tensors);
}

}  // namespace

ModelShape Rwkv7Shape(const ShapeSize& size) {
  const int64_t d = size.width;
  const int64_t ffn = 4 * d;
  ModelShape shape;
  shape.vocabulary = Vocabulary::kRwkv;
  shape.config = {{"model_type", "rwkv7"},
                  {"architectures", {"RWKV7ForCausalLM"}},
                  {"attn", nullptr},
                  {"hidden_size", d},
                  {"num_hidden_layers", size.layers},
                  {"head_dim", kRwkvHeadDim},
                  {"num_heads", d / kRwkvHeadDim},
                  {"hidden_act", "sqrelu"},
                  {"hidden_ratio", 4.0},
                  {"intermediate_size", ffn},
                  {"decay_low_rank_dim", kDecayRank},
                  {"a_low_rank_dim", kStepRank},
                  {"v_low_rank_dim", kValueRank},
                  {"gate_low_rank_dim", kGateRank},
                  {"norm_first", true},
                  {"norm_bias", true},
                  {"norm_eps", 1e-5},
                  {"tie_word_embeddings", false},
                  {"vocab_size", size.vocab}};
  TensorList tensors;
  tensors.Matrix("model.embeddings.weight", size.vocab, d);
  for (int64_t i = 0; i < size.layers; ++i) {
    const std::string layer = absl::StrCat("model.layers.", i, ".");
    if (i == 0) AddRwkvNorm(layer + "pre_norm", d, tensors);
    AddRwkvNorm(layer + "attn_norm", d, tensors);
    AddTimeMix(layer + "attn.", d, /*first_layer=*/i == 0, tensors);
    AddRwkvNorm(layer + "ffn_norm", d, tensors);
    tensors.Uniform(layer + "ffn.x_k", {d}, 0, 1);
    tensors.Matrix(layer + "ffn.key.weight", ffn, d);
    tensors.Matrix(layer + "ffn.value.weight", d, ffn);
  }
  AddRwkvNorm("model.norm", d, tensors);
  tensors.Matrix("lm_head.weight", size.vocab, d);
  shape.tensors = tensors.Take();
  return shape;
}

}  // namespace reprise::bench
