// Retention and gated linear attention of fla-org/flash-linear-attention: their
// config fields and tensor names.
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/short_conv_kernel.h"
#include "engine/kernels/state_kernels.h"
#include "engine/model/adapters.h"
#include "engine/model/config_checks.h"
#include "engine/model/decay_descriptions.h"
#include "engine/model/fla_config.h"
#include "engine/model/json_text.h"
#include "engine/model/mixer_description.h"
#include "engine/model/short_conv_description.h"

namespace reprise {
namespace {

// What fla writes into its code rather than the config.
constexpr double kRotaryBase = 10000;
constexpr int64_t kGlaRank = 16;
constexpr float kGlaNormalizer = 16;

struct Defaults {
  double expand_k = 1;
  double expand_v = 1;
};

std::optional<Activation> ReadActivation(ConfigReader& config) {
  if (!config.Has("feature_map")) return std::nullopt;
  const std::string name = config.String("feature_map");
  if (name == "relu") return Activation::kRelu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "silu" || name == "swish") return Activation::kSilu;
  config.Refuse("feature_map",
                absl::StrCat("is ", Quoted(name),
                             "; supported are 'relu', 'gelu' and 'silu'"));
  return std::nullopt;
}

// All but the names of tensors, which differ from layer to layer.
DecayAttentionDescription ReadAttention(ConfigReader& config,
                                        const FlaConfig& common,
                                        const Defaults& defaults) {
  DecayAttentionDescription d;
  d.heads = config.Int("num_heads", 1, kMaxDescribedHeads);
  d.kv_heads = ReadKvHeads(config, "num_kv_heads", "num_heads", d.heads);
  d.key_dim = ReadFlaHeadDim(config, "expand_k", common.hidden_size, d.heads,
                             defaults.expand_k);
  d.value_dim = ReadFlaHeadDim(config, "expand_v", common.hidden_size, d.heads,
                               defaults.expand_v);
  CheckKeyDim(config, "expand_k", d.key_dim, kMaxKeyDim);
  d.activation = ReadActivation(config);
  d.scale = 1 / std::sqrt(static_cast<float>(d.key_dim));
  return d;
}

// How the output norm and the gate are called.
struct OutputNames {
  bool gate = true;
  std::string norm;  // empty: without a weight
};

OutputNames ReadOutputNames(ConfigReader& config) {
  OutputNames names;
  names.gate = config.Bool("use_output_gate", /*fallback=*/true);
  const bool fused = config.Bool("fuse_norm", /*fallback=*/true);
  if (config.Bool("elementwise_affine", /*fallback=*/true)) {
    names.norm =
        names.gate && fused ? "g_norm_swish_gate.weight" : "g_norm.weight";
  }
  return names;
}

void NameTensors(const std::string& attn, const OutputNames& names,
                 float norm_eps, DecayAttentionDescription& d) {
  const std::string kv = ", num_heads and num_kv_heads";
  d.q = FlaLinear(attn + "q_proj.weight", "hidden_size and expand_k");
  d.k = FlaLinear(attn + "k_proj.weight", "hidden_size, expand_k" + kv);
  d.v = FlaLinear(attn + "v_proj.weight", "hidden_size, expand_v" + kv);
  d.o = FlaLinear(attn + "o_proj.weight", "hidden_size and expand_v");
  if (names.gate) {
    d.gate = FlaLinear(attn + "g_proj.weight", "hidden_size and expand_v");
  }
  d.output_norm =
      FlaRmsNorm(names.norm.empty() ? std::string() : attn + names.norm,
                 "hidden_size, expand_v and num_heads", norm_eps);
}

// Of q, k and v, or none.
std::vector<ShortConvDescription> ReadConvs(
    ConfigReader& config, const DecayAttentionDescription& d) {
  if (!config.Bool("use_short_conv", /*fallback=*/false)) return {};
  const int64_t taps = config.Int("conv_size", 1, kMaxConvTaps, 4);
  std::vector<ShortConvDescription> convs;
  for (const int64_t channels : {d.heads * d.key_dim, d.kv_heads * d.key_dim,
                                 d.kv_heads * d.value_dim}) {
    ShortConvDescription& conv = convs.emplace_back();
    conv.channels = channels;
    conv.taps = taps;
  }
  return convs;
}

void NameConvs(const std::string& attn,
               std::vector<ShortConvDescription>& convs) {
  const std::string_view names[] = {"q_conv1d", "k_conv1d", "v_conv1d"};
  for (size_t i = 0; i < convs.size(); ++i) {
    convs[i].weight = {absl::StrCat(attn, ToAbsl(names[i]), ".weight"),
                       "conv_size and the widths of q, k and v"};
  }
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeFlaRetention(ConfigReader& config,
                                                      const Checkpoint&) {
  const FlaConfig common = ReadFlaConfig(config, {.hidden_ratio = 2});
  RetentionDescription retention;
  retention.attention =
      ReadAttention(config, common, {.expand_k = 1, .expand_v = 2});
  retention.rotary_base = kRotaryBase;
  if (retention.attention.key_dim % 2 != 0) {
    config.Refuse("expand_k",
                  "makes an odd number of keys per head, which "
                  "rotary positions cannot pair");
  }
  const OutputNames names = ReadOutputNames(config);
  RETURN_IF_ERROR(config.status());
  for (int64_t head = 0; head < retention.attention.heads; ++head) {
    retention.decay.push_back(
        static_cast<float>(1 - std::exp2(-5.0 - static_cast<double>(head))));
  }
  return FlaModel(common, [&](const std::string& attn) -> MixerDescription {
    NameTensors(attn, names, common.norm_eps, retention.attention);
    return retention;
  });
}

absl::StatusOr<ModelDescription> DescribeFlaGatedLinearAttention(
    ConfigReader& config, const Checkpoint&) {
  const FlaConfig common = ReadFlaConfig(config);
  GatedLinearAttentionDescription gla;
  gla.attention =
      ReadAttention(config, common, {.expand_k = 0.5, .expand_v = 1});
  gla.convs = ReadConvs(config, gla.attention);
  gla.decay_rank = kGlaRank;
  gla.decay_normalizer = kGlaNormalizer;
  if (config.Has("clamp_min")) {
    gla.min_log_decay = static_cast<float>(config.Number("clamp_min", -1e6, 0));
  }
  const OutputNames names = ReadOutputNames(config);
  RETURN_IF_ERROR(config.status());
  return FlaModel(common, [&](const std::string& attn) -> MixerDescription {
    NameTensors(attn, names, common.norm_eps, gla.attention);
    NameConvs(attn, gla.convs);
    gla.decay_down =
        FlaLinear(attn + "gk_proj.0.weight", "hidden_size (and a rank of 16)");
    const std::string fields =
        "hidden_size, expand_k, num_heads and num_kv_heads";
    gla.decay_up = FlaLinear(attn + "gk_proj.1.weight", fields);
    gla.decay_up.bias = {attn + "gk_proj.1.bias", fields};
    return gla;
  });
}

}  // namespace reprise
