// Mamba and Mamba-2 in the layout of Hugging Face's transformers.
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/bench/shapes.h"

namespace reprise::bench {
namespace {

constexpr int64_t kMambaTaps = 4;

nlohmann::ordered_json MambaConfigOf(const char* type, const char* classname,
                                     const ShapeSize& size,
                                     int64_t state_size) {
  return {{"model_type", type},
          {"architectures", {classname}},
          {"hidden_size", size.width},
          {"num_hidden_layers", size.layers},
          {"expand", 2},
          {"state_size", state_size},
          {"conv_kernel", kMambaTaps},
          {"hidden_act", "silu"},
          {"layer_norm_epsilon", 1e-5},
          {"use_bias", false},
          {"use_conv_bias", true},
          {"residual_in_fp32", true},
          {"rms_norm", true},
          {"tie_word_embeddings", true},
          {"vocab_size", size.vocab}};
}

void AddMambaConv(const std::string& mixer, int64_t channels,
                  TensorList& tensors) {
  tensors.Normal(mixer + "conv1d.weight", {channels, 1, kMambaTaps}, 0, 0.5f);
  tensors.Normal(mixer + "conv1d.bias", {channels}, 0, 0.1f);
}

}  // namespace

// Decays are exp(-exp(A_log) dt): as the original initialises them, A is 1 to
// 16 and dt, the softplus of its bias and more, 0.001 to 0.1.
ModelShape MambaShape(const ShapeSize& size) {
  constexpr int64_t kStateSize = 16;
  const int64_t d = size.width;
  const int64_t inner = 2 * d;
  const int64_t dt_rank = d / 16;
  ModelShape shape;
  shape.config = MambaConfigOf("mamba", "MambaForCausalLM", size, kStateSize);
  shape.config.update(
      {{"intermediate_size", inner}, {"time_step_rank", dt_rank}});
  TensorList tensors;
  tensors.Matrix("backbone.embeddings.weight", size.vocab, d);
  for (int64_t i = 0; i < size.layers; ++i) {
    const std::string layer = absl::StrCat("backbone.layers.", i, ".");
    const std::string mixer = layer + "mixer.";
    tensors.Norm(layer + "norm.weight", d);
    tensors.UniformF32(mixer + "A_log", {inner, kStateSize}, 0, 2.77f);
    tensors.UniformF32(mixer + "D", {inner}, 0.5f, 1.5f);
    AddMambaConv(mixer, inner, tensors);
    tensors.Matrix(mixer + "in_proj.weight", 2 * inner, d);
    tensors.Matrix(mixer + "x_proj.weight", dt_rank + 2 * kStateSize, inner);
    tensors.Matrix(mixer + "dt_proj.weight", inner, dt_rank);
    tensors.Uniform(mixer + "dt_proj.bias", {inner}, -6.9f, -2.25f);
    tensors.Matrix(mixer + "out_proj.weight", d, inner);
  }
  tensors.Norm("backbone.norm_f.weight", d);
  shape.tensors = tensors.Take();
  return shape;
}

ModelShape Mamba2Shape(const ShapeSize& size) {
  constexpr int64_t kStateSize = 128;
  constexpr int64_t kHeadDim = 64;
  const int64_t d = size.width;
  const int64_t inner = 2 * d;
  const int64_t heads = inner / kHeadDim;
  const int64_t mixed = inner + 2 * kStateSize;  // x, B and C
  ModelShape shape;
  shape.config = MambaConfigOf("mamba2", "Mamba2ForCausalLM", size, kStateSize);
  shape.config.update({{"head_dim", kHeadDim},
                       {"num_heads", heads},
                       {"n_groups", 1},
                       {"chunk_size", 256}});
  TensorList tensors;
  tensors.Matrix("backbone.embeddings.weight", size.vocab, d);
  for (int64_t i = 0; i < size.layers; ++i) {
    const std::string layer = absl::StrCat("backbone.layers.", i, ".");
    const std::string mixer = layer + "mixer.";
    tensors.Norm(layer + "norm.weight", d);
    tensors.UniformF32(mixer + "dt_bias", {heads}, -6.9f, -2.25f);
    tensors.UniformF32(mixer + "A_log", {heads}, 0, 2.77f);
    tensors.UniformF32(mixer + "D", {heads}, 0.5f, 1.5f);
    AddMambaConv(mixer, mixed, tensors);
    tensors.Matrix(mixer + "in_proj.weight", inner + mixed + heads, d);
    tensors.Norm(mixer + "norm.weight", inner);
    tensors.Matrix(mixer + "out_proj.weight", d, inner);
  }
  tensors.Norm("backbone.norm_f.weight", d);
  shape.tensors = tensors.Take();
  return shape;
}

}  // namespace reprise::bench
