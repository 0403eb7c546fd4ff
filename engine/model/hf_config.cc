#include "engine/model/hf_config.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/model/adapters.h"
#include "engine/model/ffn_descriptions.h"
#include "engine/model/json_text.h"
#include "engine/model/moe_description.h"

namespace reprise {

HfConfig ReadHfConfig(ConfigReader& config) {
  HfConfig result;
  result.vocab_size = config.Int("vocab_size", 1, kMaxVocab);
  result.hidden_size = config.Int("hidden_size", 1, kMaxWidth);
  result.layers = config.Int("num_hidden_layers", 1, kMaxLayers);
  result.norm_eps =
      static_cast<float>(config.Number("rms_norm_eps", 0, 1, 1e-6));
  result.tied = config.Bool("tie_word_embeddings", /*fallback=*/false);
  const std::string activation = config.String("hidden_act", "silu");
  if (activation != "silu") {
    config.Refuse("hidden_act", absl::StrCat("is ", Quoted(activation),
                                             "; supported is 'silu'"));
  }
  return result;
}

std::vector<bool> ReadHfLayerTypes(ConfigReader& config, int64_t layers,
                                   std::string_view special,
                                   std::string_view other) {
  constexpr char kField[] = "layer_types";
  std::vector<bool> result;
  if (!config.Has(kField)) return result;
  const std::vector<std::string> types = config.StringList(kField);
  if (std::ssize(types) != layers) {
    config.Refuse(kField,
                  absl::StrCat("has ", types.size(),
                               " entries, num_hidden_layers is ", layers));
  }
  for (const std::string& type : types) {
    if (type != special && type != other) {
      config.Refuse(
          kField, absl::StrCat("has ", Quoted(type), "; supported are '",
                               ToAbsl(special), "' and '", ToAbsl(other), "'"));
    }
    result.push_back(type == special);
  }
  result.resize(static_cast<size_t>(layers));
  return result;
}

LinearRef HfLinear(const std::string& base, std::string fields, bool bias) {
  LinearRef ref;
  if (bias) ref.bias = {base + ".bias", fields};
  ref.weight = {base + ".weight", std::move(fields)};
  return ref;
}

NormDescription HfNorm(const HfConfig& common, const std::string& base,
                       std::string fields) {
  return {.kind = NormKind::kRms,
          .eps = common.norm_eps,
          .weight = {base + ".weight", std::move(fields)},
          .bias = {},
          .weight_less_one = common.norm_less_one};
}

ExpertDescription HfExpert(const std::string& base, const std::string& fields,
                           bool bias) {
  return {.gate = HfLinear(base + "gate_proj", fields, bias),
          .up = HfLinear(base + "up_proj", fields, bias),
          .down = HfLinear(base + "down_proj", fields, bias)};
}

GatedFfnDescription HfFfn(const std::string& base, int64_t width, bool bias) {
  ExpertDescription parts =
      HfExpert(base, "hidden_size and intermediate_size", bias);
  return {.width = width,
          .gate = std::move(parts.gate),
          .up = std::move(parts.up),
          .down = std::move(parts.down)};
}

ModelDescription HfModel(
    const HfConfig& common,
    absl::FunctionRef<HfLayer(int64_t, const std::string&)> describe) {
  ModelDescription model;
  model.vocab_size = common.vocab_size;
  model.d_model = common.hidden_size;
  model.embedding = {common.prefix + "embed_tokens.weight",
                     "vocab_size and hidden_size"};
  model.head.weight = {common.tied ? model.embedding.name : "lm_head.weight",
                       model.embedding.fields};
  model.final_norm = HfNorm(common, common.prefix + "norm", "hidden_size");
  for (int64_t i = 0; i < common.layers; ++i) {
    const std::string layer = absl::StrCat(common.prefix, "layers.", i, ".");
    HfLayer parts = describe(i, layer);
    model.layers.push_back(
        {{NormPlacement::kBefore,
          HfNorm(common, layer + "input_layernorm", "hidden_size"),
          std::move(parts.mixer)},
         {NormPlacement::kBefore,
          HfNorm(common, layer + "post_attention_layernorm", "hidden_size"),
          std::move(parts.ffn)}});
  }
  return model;
}

}  // namespace reprise
