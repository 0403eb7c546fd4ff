#include "engine/model/hf_attention.h"

#include <cmath>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/kernels/attention_kernels.h"
#include "engine/model/adapters.h"
#include "engine/model/config_checks.h"
#include "engine/model/json_text.h"
#include "engine/model/softmax_attention_description.h"

namespace reprise {
namespace {

// Far above and below any published value; keep quotients finite.
constexpr double kMaxBase = 1e12;
constexpr double kMinFactor = 1e-3;
constexpr double kMaxFactor = 1e6;

RotaryScaling ReadScaling(ConfigReader& rope) {
  RotaryScaling scaling;
  // Its name was 'type' once.
  const char* field = rope.Has("rope_type") ? "rope_type" : "type";
  const std::string type = rope.String(field, "default");
  if (type == "default") return scaling;
  if (type != "linear" && type != "llama3") {
    rope.Refuse(field, absl::StrCat("is ", Quoted(type),
                                    "; supported are 'default', 'linear' and "
                                    "'llama3'"));
    return scaling;
  }
  scaling.kind = type == "linear" ? RotaryScalingKind::kLinear
                                  : RotaryScalingKind::kLlama3;
  scaling.factor = rope.Number("factor", kMinFactor, kMaxFactor);
  if (type == "linear") return scaling;
  scaling.low_frequency_factor =
      rope.Number("low_freq_factor", kMinFactor, kMaxFactor);
  scaling.high_frequency_factor =
      rope.Number("high_freq_factor", kMinFactor, kMaxFactor);
  if (scaling.high_frequency_factor <= scaling.low_frequency_factor) {
    rope.Refuse("high_freq_factor",
                absl::StrCat("is ", scaling.high_frequency_factor,
                             ", which is not above low_freq_factor = ",
                             scaling.low_frequency_factor));
  }
  scaling.original_positions = static_cast<double>(
      rope.Int("original_max_position_embeddings", 1, kMaxPositions));
  return scaling;
}

void ReadRotary(ConfigReader& config, double fraction,
                SoftmaxAttentionDescription& d) {
  const auto read = [&](ConfigReader& from) {
    d.rotary_base = from.Number("rope_theta", 1, kMaxBase, d.rotary_base);
    fraction = from.Number("partial_rotary_factor", 0, 1, fraction);
  };
  read(config);
  config.ForEachObject("rope_scaling", [&](ConfigReader& rope) {
    d.rotary_scaling = ReadScaling(rope);
  });
  // Newer files have it all in one place.
  config.ForEachObject("rope_parameters", [&](ConfigReader& rope) {
    d.rotary_scaling = ReadScaling(rope);
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

int64_t ReadHeadDim(ConfigReader& config, int64_t hidden_size, int64_t heads,
                    int64_t fallback) {
  if (config.Has("head_dim") || fallback > 0) {
    return config.Int("head_dim", 1, kMaxHeadDim, fallback);
  }
  const int64_t head_dim = hidden_size / heads;
  if (hidden_size % heads != 0 || head_dim > kMaxHeadDim) {
    config.Refuse(
        "num_attention_heads",
        absl::StrCat("is ", heads, ", which does not cut hidden_size = ",
                     hidden_size, " into heads of up to ", kMaxHeadDim));
  }
  return head_dim;
}

}  // namespace

SoftmaxAttentionDescription ReadHfAttention(
    ConfigReader& config, const HfConfig& common,
    const HfAttentionDefaults& defaults) {
  SoftmaxAttentionDescription d;
  d.heads = config.Int("num_attention_heads", 1, kMaxWidth);
  d.kv_heads = ReadKvHeads(config, "num_key_value_heads", "num_attention_heads",
                           d.heads);
  d.head_dim =
      ReadHeadDim(config, common.hidden_size, d.heads, defaults.head_dim);
  ReadRotary(config, defaults.rotary_fraction, d);
  d.scale = 1 / std::sqrt(static_cast<float>(d.head_dim));
  return d;
}

SoftmaxAttentionDescription NamedHfAttention(
    const HfConfig& common, const std::string& attn,
    const HfAttentionParts& parts,
    const SoftmaxAttentionDescription& attention) {
  const std::string fields = "hidden_size, num_attention_heads and head_dim";
  const std::string kv_fields = "hidden_size, num_key_value_heads and head_dim";
  SoftmaxAttentionDescription d = attention;
  d.q = HfLinear(attn + "q_proj", fields, parts.qkv_bias);
  d.k = HfLinear(attn + "k_proj", kv_fields, parts.qkv_bias);
  d.v = HfLinear(attn + "v_proj", kv_fields, parts.qkv_bias);
  d.o = HfLinear(attn + "o_proj", fields, parts.o_bias);
  if (parts.qk_norm) {
    d.q_norm = HfNorm(common, attn + "q_norm", "head_dim");
    d.k_norm = HfNorm(common, attn + "k_norm", "head_dim");
  }
  return d;
}

}  // namespace reprise
