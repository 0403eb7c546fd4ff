// Linear attention of fla-org/flash-linear-attention: its config fields and
// tensor names.
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
#include "engine/model/config_checks.h"
#include "engine/model/fla_config.h"
#include "engine/model/json_text.h"
#include "engine/model/linear_attention_description.h"

namespace reprise {
namespace {

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
    LinearRef ref = FlaLinear(absl::StrCat(base, ".weight"), fields);
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
  d.kv_heads = ReadKvHeads(config, "num_kv_heads", "num_heads", d.heads);
  d.key_dim = ReadFlaHeadDim(config, "expand_k", common.hidden_size, d.heads);
  d.value_dim = ReadFlaHeadDim(config, "expand_v", common.hidden_size, d.heads);
  d.feature_map = ReadFeatureMap(config);
  const int64_t features = FeatureDim(d.feature_map, d.key_dim, {});
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
  d.q = FlaLinear(name("q_proj.weight"), "hidden_size and expand_k");
  d.k = FlaLinear(name("k_proj.weight"),
                  "hidden_size, expand_k, num_heads and num_kv_heads");
  d.v = FlaLinear(name("v_proj.weight"),
                  "hidden_size, expand_v, num_heads and num_kv_heads");
  d.o = FlaLinear(name("o_proj.weight"), "hidden_size and expand_v");
  d.q_layers = MapLayers(d.feature_map, name("feature_map_q"));
  d.k_layers = MapLayers(d.feature_map, name("feature_map_k"));
  if (tied_maps && d.q_layers.layer1.weight) {
    // One module under two names; a file may hold either.
    const bool q = checkpoint.Find(d.q_layers.layer1.weight.name) != nullptr;
    (q ? d.k_layers : d.q_layers) = q ? d.q_layers : d.k_layers;
  }
  const std::string fields = "hidden_size, expand_v and num_heads";
  d.output_norm = FlaRmsNorm(norm_weight ? name("norm.weight") : std::string(),
                             fields, norm_eps);
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

  return FlaModel(common, [&](const std::string& attn) {
    LinearAttentionDescription mixer = attention;
    NameLinearAttention(attn, tied_maps, norm_weight, common.norm_eps,
                        checkpoint, mixer);
    return mixer;
  });
}

}  // namespace reprise
