// DeltaNet and gated DeltaNet of fla-org/flash-linear-attention.
#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/delta_kernels.h"
#include "engine/kernels/short_conv_kernel.h"
#include "engine/model/adapters.h"
#include "engine/model/config_checks.h"
#include "engine/model/delta_description.h"
#include "engine/model/fla_config.h"
#include "engine/model/json_text.h"

namespace reprise {
namespace {

struct ActivationName {
  std::string_view name;
  HeadActivation activation;
};

constexpr std::array<ActivationName, 4> kActivationNames = {{
    {"silu", HeadActivation::kSilu},
    {"relu", HeadActivation::kRelu},
    {"elu", HeadActivation::kEluPlusOne},
    {"identity", HeadActivation::kIdentity},
}};

HeadActivation ReadQkActivation(ConfigReader& config) {
  const std::string name = config.String("qk_activation", "silu");
  for (const ActivationName& row : kActivationNames) {
    if (row.name == name) return row.activation;
  }
  config.Refuse("qk_activation",
                absl::StrCat("is ", Quoted(name),
                             "; supported are silu, relu, elu, identity"));
  return HeadActivation::kIdentity;
}

HeadNorm ReadQkNorm(ConfigReader& config) {
  const std::string name = config.String("qk_norm", "l2");
  if (name == "l2") return HeadNorm::kL2;
  if (name == "sum") return HeadNorm::kSumToOne;
  config.Refuse("qk_norm",
                absl::StrCat("is ", Quoted(name), "; supported are l2, sum"));
  return HeadNorm::kL2;
}

// Taps of the short convolutions; 0 for none.
int64_t ReadTaps(ConfigReader& config) {
  if (!config.Bool("use_short_conv", /*fallback=*/true)) return 0;
  return config.Int("conv_size", 1, kMaxConvTaps, /*fallback=*/4);
}

// What to do with q, k and v, in the convolutions if there are any.
void SetActivations(HeadActivation qk, int64_t taps, DeltaNetDescription& d) {
  // silu comes with the convolution, the others after it; v always has silu.
  const bool in_convolution = taps > 0 && qk == HeadActivation::kSilu;
  d.qk_activation = in_convolution ? HeadActivation::kIdentity : qk;
  d.v_activation = taps > 0 ? HeadActivation::kIdentity : HeadActivation::kSilu;
  if (taps == 0) return;
  const auto convolution = [&](std::string field, int64_t channels, bool silu) {
    return DeltaConvolution{.field = std::move(field),
                            .conv = {.channels = channels,
                                     .taps = taps,
                                     .weight = {},
                                     .bias = {},
                                     .silu = silu}};
  };
  const int64_t key_width = d.key_heads * d.key_dim;
  d.convolutions = {
      convolution("conv_q", key_width, in_convolution),
      convolution("conv_k", key_width, in_convolution),
      convolution("conv_v", d.heads * d.value_dim, /*silu=*/true)};
}

// Fields that set the widths of keys and values, for messages.
struct WidthFields {
  std::string key;
  std::string value;
};

// `attn` begins the names of the layer's tensors. Parts that the description
// is to have are marked by `beta`, `decay` and `gate`.
struct PartNames {
  bool beta = false;
  bool decay = false;
  bool gate = false;
};

void NameDeltaNet(const std::string& attn, const PartNames& parts,
                  const WidthFields& fields, float norm_eps,
                  DeltaNetDescription& d) {
  const auto linear = [&](std::string_view name, const std::string& of) {
    return FlaLinear(absl::StrCat(attn, ToAbsl(name), ".weight"),
                     absl::StrCat("hidden_size and ", of));
  };
  d.q = linear("q_proj", fields.key);
  d.k = linear("k_proj", fields.key);
  d.v = linear("v_proj", fields.value);
  d.o = linear("o_proj", fields.value);
  if (parts.gate) d.gate = linear("g_proj", fields.value);
  if (parts.beta) d.beta = linear("b_proj", "num_heads");
  if (parts.decay) {
    d.decay = linear("a_proj", "num_heads");
    d.a_log = {attn + "A_log", "num_heads"};
    d.dt_bias = {attn + "dt_bias", "num_heads"};
  }
  static constexpr std::string_view kConvs[] = {"q_conv1d", "k_conv1d",
                                                "v_conv1d"};
  for (size_t i = 0; i < d.convolutions.size(); ++i) {
    d.convolutions[i].conv.weight = {
        absl::StrCat(attn, ToAbsl(kConvs[i]), ".weight"),
        absl::StrCat("conv_size and ", i < 2 ? fields.key : fields.value)};
  }
  d.output_norm = FlaRmsNorm(attn + "o_norm.weight", fields.value, norm_eps);
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeFlaDeltaNet(ConfigReader& config,
                                                     const Checkpoint&) {
  const FlaConfig common = ReadFlaConfig(config);
  DeltaNetDescription d;
  d.heads = d.key_heads = config.Int("num_heads", 1, kMaxWidth);
  d.key_dim = ReadFlaHeadDim(config, "expand_k", common.hidden_size, d.heads);
  d.value_dim = ReadFlaHeadDim(config, "expand_v", common.hidden_size, d.heads);
  CheckKeyDim(config, "expand_k", d.key_dim, kMaxDeltaKeyDim);
  d.scale = 1 / std::sqrt(static_cast<float>(d.key_dim));
  d.qk_norm = ReadQkNorm(config);
  const HeadActivation activation = ReadQkActivation(config);
  SetActivations(activation, ReadTaps(config), d);
  const bool negative = config.Bool("allow_neg_eigval", /*fallback=*/false);
  d.beta_scale = negative ? 2 : 1;
  const PartNames parts = {.beta = config.Bool("use_beta", /*fallback=*/true),
                           .decay = false,
                           .gate = config.Bool("use_gate", /*fallback=*/false)};
  RETURN_IF_ERROR(config.status());
  return FlaModel(common, [&](const std::string& attn) {
    DeltaNetDescription mixer = d;
    NameDeltaNet(attn, parts, {"expand_k", "expand_v"}, common.norm_eps, mixer);
    return mixer;
  });
}

absl::StatusOr<ModelDescription> DescribeFlaGatedDeltaNet(ConfigReader& config,
                                                          const Checkpoint&) {
  const FlaConfig common = ReadFlaConfig(config);
  DeltaNetDescription d;
  d.key_heads = config.Int("num_heads", 1, kMaxWidth);
  d.heads = config.Int("num_v_heads", 1, kMaxWidth, /*fallback=*/d.key_heads);
  if (d.heads % d.key_heads != 0) {
    config.Refuse("num_v_heads",
                  absl::StrCat("is ", d.heads, ", which num_heads = ",
                               d.key_heads, " does not divide"));
  }
  d.key_dim = config.Int("head_dim", 1, kMaxDeltaKeyDim, /*fallback=*/256);
  const double values = static_cast<double>(d.key_dim) *
                        config.Number("expand_v", 1e-3, 64, /*fallback=*/2.0);
  d.value_dim = static_cast<int64_t>(values);
  if (d.value_dim < 1 || static_cast<double>(d.value_dim) != values) {
    config.Refuse("expand_v", absl::StrCat("times head_dim is ", values,
                                           ", which is no whole number"));
  }
  d.scale = 1 / std::sqrt(static_cast<float>(d.key_dim));
  SetActivations(HeadActivation::kSilu, ReadTaps(config), d);
  const bool negative = config.Bool("allow_neg_eigval", /*fallback=*/false);
  d.beta_scale = negative ? 2 : 1;
  const PartNames parts = {.beta = true,
                           .decay = true,
                           .gate = config.Bool("use_gate", /*fallback=*/true)};
  RETURN_IF_ERROR(config.status());
  const WidthFields fields = {"num_heads and head_dim",
                              "num_v_heads, head_dim and expand_v"};
  return FlaModel(common, [&](const std::string& attn) {
    DeltaNetDescription mixer = d;
    NameDeltaNet(attn, parts, fields, common.norm_eps, mixer);
    return mixer;
  });
}

}  // namespace reprise
