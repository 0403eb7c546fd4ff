#include "engine/model/fla_config.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/model/adapters.h"
#include "engine/model/config_checks.h"
#include "engine/model/ffn_descriptions.h"
#include "engine/model/fla_attention.h"
#include "engine/model/json_text.h"

namespace reprise {
namespace {

// fla's default where intermediate_size is null: two thirds of hidden_ratio
// times the width, rounded up to a multiple of 256.
int64_t DerivedFfnWidth(int64_t hidden_size, double hidden_ratio) {
  const auto width = static_cast<int64_t>(static_cast<double>(hidden_size) *
                                          hidden_ratio * 2 / 3);
  return (width + 255) / 256 * 256;
}

GatedFfnDescription FlaFfn(const std::string& mlp, const FlaConfig& common) {
  const auto linear = [&](std::string_view name) {
    return FlaLinear(absl::StrCat(mlp, ToAbsl(name), ".weight"),
                     common.ffn_fields);
  };
  return {.width = common.ffn_width,
          .gate = linear("gate_proj"),
          .up = linear("up_proj"),
          .down = linear("down_proj")};
}

}  // namespace

FlaConfig ReadFlaConfig(ConfigReader& config, const FlaDefaults& defaults) {
  FlaConfig result;
  result.vocab_size = config.Int("vocab_size", 1, kMaxVocab);
  result.hidden_size = config.Int("hidden_size", 1, kMaxWidth);
  result.layers = config.Int("num_hidden_layers", 1, kMaxLayers);
  result.norm_eps =
      static_cast<float>(config.Number("norm_eps", 0, 1, /*fallback=*/1e-6));
  result.tied = config.Bool("tie_word_embeddings", /*fallback=*/false);
  if (config.Has("intermediate_size")) {
    result.ffn_width = config.Int("intermediate_size", 1, kMaxWidth);
    result.ffn_fields = "hidden_size and intermediate_size";
  } else {
    const double ratio =
        config.Number("hidden_ratio", 1e-3, 64, defaults.hidden_ratio);
    result.ffn_width =
        CheckedWidth(config, "hidden_ratio", "feed-forward parts",
                     DerivedFfnWidth(result.hidden_size, ratio));
    result.ffn_fields = "hidden_size and hidden_ratio";
  }
  const std::string activation = config.String("hidden_act", "swish");
  if (activation != "swish" && activation != "silu") {
    config.Refuse("hidden_act",
                  absl::StrCat("is ", Quoted(activation),
                               "; supported are 'swish' and 'silu'"));
  }
  result.attention =
      ReadFlaHybridAttention(config, result.hidden_size, result.layers);
  if (config.Has("attnres_block_size")) {
    config.Refuse("attnres_block_size",
                  "asks for attention over residuals, which is not supported");
  }
  return result;
}

int64_t ReadFlaHeadDim(ConfigReader& config, const char* field,
                       int64_t hidden_size, int64_t heads, double expand) {
  expand = config.Number(field, 1e-3, 64, /*fallback=*/expand);
  const auto width =
      static_cast<int64_t>(static_cast<double>(hidden_size) * expand);
  if (width < 1 || width % heads != 0) {
    config.Refuse(
        field, absl::StrCat("times hidden_size is ", width,
                            ", which num_heads = ", heads, " does not divide"));
  }
  return width / heads;
}

NormDescription FlaRmsNorm(std::string name, std::string fields, float eps) {
  return {.kind = NormKind::kRms,
          .eps = eps,
          .weight = {std::move(name), std::move(fields)},
          .bias = {}};
}

LinearRef FlaLinear(std::string name, std::string fields) {
  return {.weight = {std::move(name), std::move(fields)}, .bias = {}};
}

ModelDescription FlaModel(
    const FlaConfig& common,
    absl::FunctionRef<MixerDescription(const std::string&)> mixer) {
  ModelDescription model;
  model.vocab_size = common.vocab_size;
  model.d_model = common.hidden_size;
  model.embedding = {"model.embeddings.weight", "vocab_size and hidden_size"};
  model.head = FlaLinear(
      common.tied ? model.embedding.name : std::string("lm_head.weight"),
      model.embedding.fields);
  model.final_norm =
      FlaRmsNorm("model.norm.weight", "hidden_size", common.norm_eps);
  for (int64_t i = 0; i < common.layers; ++i) {
    const std::string layer = absl::StrCat("model.layers.", i, ".");
    const auto norm = [&](std::string_view name) {
      return FlaRmsNorm(absl::StrCat(layer, ToAbsl(name), ".weight"),
                        "hidden_size", common.norm_eps);
    };
    const std::string attn = layer + "attn.";
    const auto& softmax = common.attention[static_cast<size_t>(i)];
    model.layers.push_back(
        {{NormPlacement::kBefore, norm("attn_norm"),
          softmax ? NamedFlaAttention(attn, *softmax) : mixer(attn)},
         {NormPlacement::kBefore, norm("mlp_norm"),
          FlaFfn(absl::StrCat(layer, "mlp."), common)}});
  }
  return model;
}

}  // namespace reprise
