// Models of fla-org/flash-linear-attention: its config fields and tensor names.
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/state_kernels.h"
#include "engine/model/adapters.h"
#include "engine/model/json_text.h"

namespace reprise {
namespace {

// The fields that all fla models share.
struct FlaConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t layers = 0;
  float norm_eps = 0;
  int64_t ffn_width = 0;
  std::string ffn_fields;  // that set ffn_width
  bool tied = false;
};

// fla's default where intermediate_size is null: two thirds of hidden_ratio
// times the width, rounded up to a multiple of 256.
int64_t DerivedFfnWidth(int64_t hidden_size, double hidden_ratio) {
  const auto width = static_cast<int64_t>(static_cast<double>(hidden_size) *
                                          hidden_ratio * 2 / 3);
  return (width + 255) / 256 * 256;
}

FlaConfig ReadFlaConfig(ConfigReader& config) {
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
        config.Number("hidden_ratio", 1e-3, 64, /*fallback=*/4.0);
    result.ffn_width = DerivedFfnWidth(result.hidden_size, ratio);
    result.ffn_fields = "hidden_size and hidden_ratio";
  }
  const std::string activation = config.String("hidden_act", "swish");
  if (activation != "swish" && activation != "silu") {
    config.Refuse("hidden_act",
                  absl::StrCat("is ", Quoted(activation),
                               "; supported are 'swish' and 'silu'"));
  }
  if (config.Has("attn")) {
    config.Refuse("attn",
                  "asks for softmax attention in some layers, which is not "
                  "supported");
  }
  if (config.Has("attnres_block_size")) {
    config.Refuse("attnres_block_size",
                  "asks for attention over residuals, which is not supported");
  }
  return result;
}

NormDescription RmsNorm(std::string name, std::string fields, float eps) {
  return {.kind = NormKind::kRms,
          .eps = eps,
          .weight = {std::move(name), std::move(fields)},
          .bias = {}};
}

LinearRef NoBias(std::string name, std::string fields) {
  return {.weight = {std::move(name), std::move(fields)}, .bias = {}};
}

struct MapName {
  std::string_view name;
  FeatureMap map;
};

constexpr std::array<MapName, 7> kMapNames = {{
    {"elu", FeatureMap::kEluPlusOne},
    {"relu", FeatureMap::kRelu},
    {"identity", FeatureMap::kIdentity},
    {"elementwise_product", FeatureMap::kElementwiseProduct},
    {"hedgehog", FeatureMap::kHedgehog},
    {"t2r", FeatureMap::kT2r},
    {"dpfp", FeatureMap::kDpfp},
}};

FeatureMap ReadFeatureMap(ConfigReader& config) {
  const std::string name = config.String("feature_map");
  for (const MapName& row : kMapNames) {
    if (row.name == name) return row.map;
  }
  config.Refuse("feature_map",
                absl::StrCat("is ", Quoted(name), "; supported are ",
                             absl::StrJoin(kMapNames, ", ",
                                           [](std::string* out, MapName row) {
                                             out->append(row.name);
                                           })));
  return FeatureMap::kIdentity;
}

FeatureLayers MapLayers(FeatureMap map, const std::string& prefix) {
  const std::string fields = "hidden_size, expand_k and num_heads";
  const auto layer = [&](std::string_view name, bool bias) {
    const std::string base = absl::StrCat(prefix, ".", ToAbsl(name));
    LinearRef ref = NoBias(absl::StrCat(base, ".weight"), fields);
    if (bias) ref.bias = {absl::StrCat(base, ".bias"), fields};
    return ref;
  };
  switch (map) {
    case FeatureMap::kElementwiseProduct:
      return {layer("layer1", true), layer("layer2", true)};
    case FeatureMap::kHedgehog:
      return {layer("layer", true), {}};
    case FeatureMap::kT2r:
      return {layer("layer", false), {}};
    default:
      return {};
  }
}

// The part of the description that is the same in every layer.
LinearAttentionDescription ReadLinearAttention(ConfigReader& config,
                                               const FlaConfig& common) {
  LinearAttentionDescription d;
  d.heads = config.Int("num_heads", 1, kMaxWidth);
  d.kv_heads = config.Int("num_kv_heads", 1, kMaxWidth, /*fallback=*/d.heads);
  if (d.heads % d.kv_heads != 0) {
    config.Refuse("num_kv_heads",
                  absl::StrCat("is ", d.kv_heads, ", which does not divide ",
                               "num_heads = ", d.heads));
  }
  const auto head_dim = [&](std::string_view field) {
    const double expand = config.Number(field, 1e-3, 64, /*fallback=*/1.0);
    const auto width =
        static_cast<int64_t>(static_cast<double>(common.hidden_size) * expand);
    if (width < 1 || width % d.heads != 0) {
      config.Refuse(field, absl::StrCat("times hidden_size is ", width,
                                        ", which num_heads = ", d.heads,
                                        " does not divide"));
    }
    return width / d.heads;
  };
  d.key_dim = head_dim("expand_k");
  d.value_dim = head_dim("expand_v");
  d.feature_map = ReadFeatureMap(config);
  const int64_t features = FeatureDim(d.feature_map, d.key_dim);
  if (features > kMaxKeyDim) {
    config.Refuse(
        "feature_map",
        absl::StrCat("makes ", features, " features per head, the limit is ",
                     kMaxKeyDim));
  }
  d.q_sum_to_one = config.Bool("norm_q", /*fallback=*/false);
  d.k_sum_to_one = config.Bool("norm_k", /*fallback=*/false);
  d.normalize = config.Bool("norm_feature_map", /*fallback=*/false);
  d.epsilon = 1e-10F;
  d.scale = 1 / std::sqrt(static_cast<float>(features));
  return d;
}

void NameLinearAttention(const std::string& attn, bool tied_maps,
                         bool norm_weight, float norm_eps,
                         const Checkpoint& checkpoint,
                         LinearAttentionDescription& d) {
  const auto name = [&attn](std::string_view rest) {
    return absl::StrCat(attn, ToAbsl(rest));
  };
  d.q = NoBias(name("q_proj.weight"), "hidden_size and expand_k");
  d.k = NoBias(name("k_proj.weight"),
               "hidden_size, expand_k, num_heads and num_kv_heads");
  d.v = NoBias(name("v_proj.weight"),
               "hidden_size, expand_v, num_heads and num_kv_heads");
  d.o = NoBias(name("o_proj.weight"), "hidden_size and expand_v");
  d.q_layers = MapLayers(d.feature_map, name("feature_map_q"));
  d.k_layers = MapLayers(d.feature_map, name("feature_map_k"));
  if (tied_maps && d.q_layers.layer1.weight) {
    // One module under two names; a file may hold either.
    const bool q = checkpoint.Find(d.q_layers.layer1.weight.name) != nullptr;
    (q ? d.k_layers : d.q_layers) = q ? d.q_layers : d.k_layers;
  }
  const std::string fields = "hidden_size, expand_v and num_heads";
  d.output_norm = RmsNorm(norm_weight ? name("norm.weight") : std::string(),
                          fields, norm_eps);
}

GatedFfnDescription FlaFfn(const std::string& mlp, const FlaConfig& common) {
  const auto linear = [&](std::string_view name) {
    return NoBias(absl::StrCat(mlp, ToAbsl(name), ".weight"),
                  common.ffn_fields);
  };
  return {.width = common.ffn_width,
          .gate = linear("gate_proj"),
          .up = linear("up_proj"),
          .down = linear("down_proj")};
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeFlaLinearAttention(
    ConfigReader& config, const Checkpoint& checkpoint) {
  const FlaConfig common = ReadFlaConfig(config);
  const LinearAttentionDescription attention =
      ReadLinearAttention(config, common);
  const bool tied_maps = config.Bool("tie_feature_map_qk", /*fallback=*/false);
  const bool norm_weight = config.Bool("elementwise_affine", /*fallback=*/true);
  RETURN_IF_ERROR(config.status());

  ModelDescription model;
  model.vocab_size = common.vocab_size;
  model.d_model = common.hidden_size;
  model.embedding = {"model.embeddings.weight", "vocab_size and hidden_size"};
  model.head =
      NoBias(common.tied ? model.embedding.name : std::string("lm_head.weight"),
             model.embedding.fields);
  model.final_norm =
      RmsNorm("model.norm.weight", "hidden_size", common.norm_eps);
  for (int64_t i = 0; i < common.layers; ++i) {
    const std::string layer = absl::StrCat("model.layers.", i, ".");
    const auto norm = [&](std::string_view name) {
      return RmsNorm(absl::StrCat(layer, ToAbsl(name), ".weight"),
                     "hidden_size", common.norm_eps);
    };
    LinearAttentionDescription mixer = attention;
    NameLinearAttention(absl::StrCat(layer, "attn."), tied_maps, norm_weight,
                        common.norm_eps, checkpoint, mixer);
    model.layers.push_back(
        {{NormPlacement::kBefore, norm("attn_norm"), std::move(mixer)},
         {NormPlacement::kBefore, norm("mlp_norm"),
          FlaFfn(absl::StrCat(layer, "mlp."), common)}});
  }
  return model;
}

}  // namespace reprise
