// Llama in Hugging Face's layout (LlamaForCausalLM).
#include <cmath>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/attention_kernels.h"
#include "engine/model/adapters.h"
#include "engine/model/json_text.h"

namespace reprise {
namespace {

// The config's fields but those that go to one place only.
struct LlamaConfig {
  int64_t hidden_size = 0;
  int64_t layers = 0;
  int64_t ffn_width = 0;
  float norm_eps = 0;
  bool attention_bias = false;
  bool mlp_bias = false;
  bool tied = false;
};

LlamaConfig ReadConfig(ConfigReader& config) {
  LlamaConfig result;
  result.hidden_size = config.Int("hidden_size", 1, kMaxWidth);
  result.layers = config.Int("num_hidden_layers", 1, kMaxLayers);
  result.ffn_width = config.Int("intermediate_size", 1, kMaxWidth);
  result.norm_eps =
      static_cast<float>(config.Number("rms_norm_eps", 0, 1, 1e-6));
  result.attention_bias = config.Bool("attention_bias", /*fallback=*/false);
  result.mlp_bias = config.Bool("mlp_bias", /*fallback=*/false);
  result.tied = config.Bool("tie_word_embeddings", /*fallback=*/false);
  const std::string activation = config.String("hidden_act", "silu");
  if (activation != "silu") {
    config.Refuse("hidden_act", absl::StrCat("is ", Quoted(activation),
                                             "; supported is 'silu'"));
  }
  return result;
}

// Refuses positions that are stretched; `field` holds an object.
void CheckRopeType(ConfigReader& rope) {
  // Its name was 'type' once.
  const char* field = rope.Has("rope_type") ? "rope_type" : "type";
  const std::string type = rope.String(field, "default");
  if (type == "default") return;
  rope.Refuse(field, absl::StrCat("is ", Quoted(type),
                                  "; supported is 'default' (no scaling)"));
}

void ReadRotary(ConfigReader& config, SoftmaxAttentionDescription& d) {
  double fraction = 1;
  const auto read = [&](ConfigReader& from) {
    d.rotary_base = from.Number("rope_theta", 1, 1e12, d.rotary_base);
    fraction = from.Number("partial_rotary_factor", 0, 1, fraction);
  };
  read(config);
  config.ForEachObject("rope_scaling", CheckRopeType);
  // Newer files have it all in one place.
  config.ForEachObject("rope_parameters", [&](ConfigReader& rope) {
    CheckRopeType(rope);
    read(rope);
  });
  d.rotary_dim =
      static_cast<int64_t>(static_cast<double>(d.head_dim) * fraction);
  if (d.rotary_dim % 2 != 0) {
    config.Refuse(config.Has("head_dim") ? "head_dim" : "num_attention_heads",
                  absl::StrCat("makes rotary positions turn ", d.rotary_dim,
                               " numbers of a head, which is odd"));
  }
}

SoftmaxAttentionDescription ReadAttention(ConfigReader& config,
                                          int64_t hidden_size) {
  SoftmaxAttentionDescription d;
  d.heads = config.Int("num_attention_heads", 1, kMaxWidth);
  d.kv_heads = config.Int("num_key_value_heads", 1, kMaxWidth, d.heads);
  if (d.heads % d.kv_heads != 0) {
    config.Refuse("num_key_value_heads",
                  absl::StrCat("is ", d.kv_heads, ", which does not divide ",
                               "num_attention_heads = ", d.heads));
  }
  if (config.Has("head_dim")) {
    d.head_dim = config.Int("head_dim", 1, kMaxHeadDim);
  } else {
    d.head_dim = hidden_size / d.heads;
    if (hidden_size % d.heads != 0 || d.head_dim > kMaxHeadDim) {
      config.Refuse(
          "num_attention_heads",
          absl::StrCat("is ", d.heads, ", which does not cut hidden_size = ",
                       hidden_size, " into heads of up to ", kMaxHeadDim));
    }
  }
  ReadRotary(config, d);
  d.scale = 1 / std::sqrt(static_cast<float>(d.head_dim));
  return d;
}

LinearRef LinearOf(const std::string& base, std::string_view fields,
                   bool bias) {
  LinearRef ref;
  ref.weight = {base + ".weight", std::string(fields)};
  if (bias) ref.bias = {base + ".bias", std::string(fields)};
  return ref;
}

void NameAttention(const std::string& layer, bool bias,
                   SoftmaxAttentionDescription& d) {
  const auto linear = [&](std::string_view name, std::string_view fields) {
    return LinearOf(absl::StrCat(layer, "self_attn.", ToAbsl(name), "_proj"),
                    fields, bias);
  };
  constexpr std::string_view kFields =
      "hidden_size, num_attention_heads and head_dim";
  constexpr std::string_view kKeyFields =
      "hidden_size, num_key_value_heads and head_dim";
  d.q = linear("q", kFields);
  d.k = linear("k", kKeyFields);
  d.v = linear("v", kKeyFields);
  d.o = linear("o", kFields);
}

GatedFfnDescription FfnOf(const std::string& layer, const LlamaConfig& common) {
  const auto linear = [&](std::string_view name) {
    return LinearOf(absl::StrCat(layer, "mlp.", ToAbsl(name), "_proj"),
                    "hidden_size and intermediate_size", common.mlp_bias);
  };
  return {.width = common.ffn_width,
          .gate = linear("gate"),
          .up = linear("up"),
          .down = linear("down")};
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeLlama(ConfigReader& config,
                                               const Checkpoint&) {
  ModelDescription model;
  model.vocab_size = config.Int("vocab_size", 1, kMaxVocab);
  const LlamaConfig common = ReadConfig(config);
  SoftmaxAttentionDescription attention =
      ReadAttention(config, common.hidden_size);
  RETURN_IF_ERROR(config.status());

  model.d_model = common.hidden_size;
  model.embedding = {"model.embed_tokens.weight", "vocab_size and hidden_size"};
  model.head.weight = {common.tied ? model.embedding.name : "lm_head.weight",
                       model.embedding.fields};
  const auto norm = [&](const std::string& name) {
    return NormDescription{.kind = NormKind::kRms,
                           .eps = common.norm_eps,
                           .weight = {name + ".weight", "hidden_size"},
                           .bias = {}};
  };
  model.final_norm = norm("model.norm");
  for (int64_t i = 0; i < common.layers; ++i) {
    const std::string layer = absl::StrCat("model.layers.", i, ".");
    NameAttention(layer, common.attention_bias, attention);
    model.layers.push_back(
        {{NormPlacement::kBefore, norm(layer + "input_layernorm"), attention},
         {NormPlacement::kBefore, norm(layer + "post_attention_layernorm"),
          FfnOf(layer, common)}});
  }
  return model;
}

}  // namespace reprise
