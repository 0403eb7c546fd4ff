#include "engine/model/fla_attention.h"

#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/attention_kernels.h"
#include "engine/model/adapters.h"
#include "engine/model/config_checks.h"
#include "engine/model/fla_config.h"
#include "engine/model/softmax_attention_description.h"

namespace reprise {
namespace {

// Of the norms on queries and keys, whatever norm_eps says.
constexpr float kQkNormEps = 1e-5F;

// What the transformer's config and an 'attn' object have in common. A bias or
// a norm that a layer has is named later; here it gets a mark.
SoftmaxAttentionDescription ReadAttention(ConfigReader& config,
                                          int64_t hidden_size) {
  SoftmaxAttentionDescription d;
  d.heads = config.Int("num_heads", 1, kMaxWidth);
  d.kv_heads = ReadKvHeads(config, "num_kv_heads", "num_heads", d.heads);
  d.head_dim = hidden_size / d.heads;
  if (hidden_size % d.heads != 0 || d.head_dim % 2 != 0 ||
      d.head_dim > kMaxHeadDim) {
    config.Refuse(
        "num_heads",
        absl::StrCat("is ", d.heads,
                     ", which does not cut hidden_size = ", hidden_size,
                     " into heads of an even width up to ", kMaxHeadDim));
  }
  d.rotary_dim = d.head_dim;
  d.rotary_base = config.Number("rope_theta", 1, 1e12, /*fallback=*/10000.0);
  if (config.Has("window_size")) {
    d.window = config.Int("window_size", 1, kMaxAttentionWindow);
  }
  if (config.Bool("qkv_bias", /*fallback=*/false)) d.q.bias.name = "bias";
  if (config.Bool("qk_norm", /*fallback=*/false)) {
    d.q_norm = d.k_norm = NormDescription{
        .kind = NormKind::kRms, .eps = kQkNormEps, .weight = {}, .bias = {}};
  }
  d.scale = 1 / std::sqrt(static_cast<float>(d.head_dim));
  return d;
}

}  // namespace

std::vector<std::optional<SoftmaxAttentionDescription>> ReadFlaHybridAttention(
    ConfigReader& config, int64_t hidden_size, int64_t layers) {
  std::vector<std::optional<SoftmaxAttentionDescription>> result(
      static_cast<size_t>(layers));
  config.ForEachObject("attn", [&](ConfigReader& attn) {
    const SoftmaxAttentionDescription d = ReadAttention(attn, hidden_size);
    const std::vector<int64_t> which = attn.IntList("layers", 0, layers - 1);
    if (which.empty()) attn.Refuse("layers", "names no layer");
    if (d.q_norm) {
      attn.Refuse("qk_norm", "is true; hybrids have no norm there");
    }
    for (const int64_t layer : which) {
      auto& slot = result[static_cast<size_t>(layer)];
      if (slot) attn.Refuse("layers", absl::StrCat("names ", layer, " twice"));
      slot = d;
    }
  });
  return result;
}

MixerDescription NamedFlaAttention(
    const std::string& attn, const SoftmaxAttentionDescription& attention) {
  const bool biased = static_cast<bool>(attention.q.bias);
  const auto linear = [&](std::string_view name, std::string_view fields,
                          bool bias) {
    const std::string base = absl::StrCat(attn, ToAbsl(name), "_proj.");
    LinearRef ref = FlaLinear(base + "weight", std::string(fields));
    if (bias) ref.bias = {base + "bias", std::string(fields)};
    return ref;
  };
  SoftmaxAttentionDescription d = attention;
  constexpr std::string_view kKeyFields =
      "hidden_size, num_heads and num_kv_heads";
  d.q = linear("q", "hidden_size", biased);
  d.k = linear("k", kKeyFields, biased);
  d.v = linear("v", kKeyFields, biased);
  d.o = linear("o", "hidden_size", /*bias=*/false);
  if (d.q_norm) {
    d.q_norm->weight = {attn + "q_norm.weight", "hidden_size and num_heads"};
    d.k_norm->weight = {attn + "k_norm.weight", "hidden_size and num_heads"};
  }
  return d;
}

absl::StatusOr<ModelDescription> DescribeFlaTransformer(ConfigReader& config,
                                                        const Checkpoint&) {
  const FlaConfig common = ReadFlaConfig(config);
  const SoftmaxAttentionDescription attention =
      ReadAttention(config, common.hidden_size);
  RETURN_IF_ERROR(config.status());
  return FlaModel(common, [&](const std::string& attn) {
    return NamedFlaAttention(attn, attention);
  });
}

}  // namespace reprise
