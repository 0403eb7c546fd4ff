// RWKV-4, 5 and 6: the original layouts of BlinkDL/RWKV-LM, RWKV-4 of Hugging
// Face's transformers, and RWKV-6 of fla-org/flash-linear-attention.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/state_kernels.h"
#include "engine/model/adapters.h"
#include "engine/model/config_checks.h"
#include "engine/model/fla_config.h"
#include "engine/model/json_text.h"
#include "engine/model/rwkv7_description.h"
#include "engine/model/rwkv_descriptions.h"

namespace reprise {
namespace {

struct RwkvConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t layers = 0;
  float norm_eps = 1e-5F;
  float final_norm_eps = 1e-5F;
  bool tied = false;
};

// What the parts around the mixers are called.
struct RwkvLayout {
  std::string_view embedding;
  std::string_view head;
  std::string_view final_norm;
  std::string_view layer;  // before the layer's number
  std::string_view first_norm;
  std::string_view att_norm;
  std::string_view ffn_norm;
  std::string_view att;
  std::string_view ffn;
};
constexpr RwkvLayout kOriginal = {"emb.weight", "head.weight", "ln_out",
                                  "blocks.",    "ln0",         "ln1",
                                  "ln2",        "att.",        "ffn."};
constexpr RwkvLayout kHf = {"rwkv.embeddings.weight",
                            "head.weight",
                            "rwkv.ln_out",
                            "rwkv.blocks.",
                            "pre_ln",
                            "ln1",
                            "ln2",
                            "attention.",
                            "feed_forward."};
constexpr RwkvLayout kFla = {"model.embeddings.weight",
                             "lm_head.weight",
                             "model.norm",
                             "model.layers.",
                             "pre_norm",
                             "attn_norm",
                             "ffn_norm",
                             "attn.",
                             "ffn."};

constexpr char kFields[] = "hidden_size";

RwkvConfig ReadCommon(ConfigReader& config) {
  RwkvConfig result;
  result.vocab_size = config.Int("vocab_size", 1, kMaxVocab);
  result.hidden_size = config.Int("hidden_size", 1, kMaxWidth);
  result.layers = config.Int("num_hidden_layers", 1, kMaxLayers);
  result.tied = config.Bool("tie_word_embeddings", /*fallback=*/false);
  return result;
}

// Dimension `index` of a tensor, or 1: sizes that no config has are those of
// the file, and the check of shapes says what is wrong with them.
int64_t DimensionOf(const Checkpoint& checkpoint, const std::string& name,
                    size_t index) {
  const TensorInfo* tensor = checkpoint.Find(name);
  if (tensor == nullptr || tensor->shape.size() <= index) return 1;
  const int64_t size = tensor->shape[index];
  return size >= 1 && size <= kMaxWidth ? size : 1;
}

TensorRef Ref(const std::string& name) { return {name, kFields}; }

LinearRef Matrix(const std::string& name) {
  LinearRef ref;
  ref.weight = Ref(name);
  return ref;
}

// `elements` numbers in whatever shape the file has them.
ShapedRef Shaped(const Checkpoint& checkpoint, const std::string& name,
                 int64_t elements) {
  ShapedRef ref{.tensor = Ref(name), .shape = {elements}};
  const TensorInfo* tensor = checkpoint.Find(name);
  if (tensor != nullptr && tensor->elements == elements) {
    ref.shape = tensor->shape;
  }
  return ref;
}

// Numbers of each channel or, if the file has as many as heads, of each head.
ShapedRef OfHeads(const Checkpoint& checkpoint, const std::string& name,
                  int64_t heads, int64_t channels) {
  const TensorInfo* tensor = checkpoint.Find(name);
  const bool per_head = tensor != nullptr && tensor->elements == heads;
  return Shaped(checkpoint, name, per_head ? heads : channels);
}

// The original code's "time_mix", which is the share of the token itself.
RwkvMix ShareOfNow(const Checkpoint& checkpoint, const std::string& name,
                   int64_t width) {
  return {.share = Shaped(checkpoint, name, width), .first = 0, .of_now = true};
}

RwkvMix ShareOfBefore(const Checkpoint& checkpoint, const std::string& name,
                      int64_t width) {
  return {.share = Shaped(checkpoint, name, width), .first = 0};
}

NormDescription LayerNorm(const std::string& base, float eps) {
  return {.kind = NormKind::kLayer,
          .eps = eps,
          .weight = Ref(base + ".weight"),
          .bias = Ref(base + ".bias")};
}

// The model around the mixers that `time_mix` and `channel_mix` make of the
// beginnings of their tensors' names.
template <class TimeMix, class ChannelMix>
ModelDescription Build(const RwkvConfig& config, const RwkvLayout& layout,
                       TimeMix time_mix, ChannelMix channel_mix) {
  ModelDescription model;
  model.vocab_size = config.vocab_size;
  model.d_model = config.hidden_size;
  model.embedding = {std::string(layout.embedding),
                     "vocab_size and hidden_size"};
  model.head.weight = model.embedding;
  if (!config.tied) model.head.weight.name = layout.head;
  model.final_norm =
      LayerNorm(std::string(layout.final_norm), config.final_norm_eps);
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = absl::StrCat(ToAbsl(layout.layer), i, ".");
    const auto name = [&](std::string_view rest) {
      return absl::StrCat(layer, ToAbsl(rest));
    };
    if (i == 0) {
      model.embedding_norm =
          LayerNorm(name(layout.first_norm), config.norm_eps);
    }
    model.layers.push_back({{NormPlacement::kBefore,
                             LayerNorm(name(layout.att_norm), config.norm_eps),
                             time_mix(name(layout.att))},
                            {NormPlacement::kBefore,
                             LayerNorm(name(layout.ffn_norm), config.norm_eps),
                             channel_mix(name(layout.ffn))}});
  }
  return model;
}

// Of RWKV-4 and 5. The long names are transformers'.
RwkvChannelMixDescription ChannelMix(const Checkpoint& checkpoint,
                                     const std::string& ffn, int64_t width,
                                     bool long_names) {
  RwkvChannelMixDescription d;
  d.width = DimensionOf(checkpoint, ffn + "key.weight", 0);
  d.mix_k = ShareOfNow(
      checkpoint, ffn + (long_names ? "time_mix_key" : "time_mix_k"), width);
  d.mix_r = ShareOfNow(
      checkpoint, ffn + (long_names ? "time_mix_receptance" : "time_mix_r"),
      width);
  d.key = Matrix(ffn + "key.weight");
  d.value = Matrix(ffn + "value.weight");
  d.receptance = Matrix(ffn + "receptance.weight");
  return d;
}

absl::StatusOr<ModelDescription> DescribeRwkv4(ConfigReader& reader,
                                               const Checkpoint& checkpoint,
                                               bool hf) {
  RwkvConfig config = ReadCommon(reader);
  int64_t width = config.hidden_size;
  if (hf) {
    width = reader.Int("attention_hidden_size", 1, kMaxWidth,
                       /*fallback=*/width);
    config.norm_eps = static_cast<float>(
        reader.Number("layer_norm_epsilon", 0, 1, /*fallback=*/1e-5));
  }
  RETURN_IF_ERROR(reader.status());
  const auto time_mix = [&](const std::string& att) {
    const auto mix = [&](const char* name, const char* letter) {
      return ShareOfNow(checkpoint,
                        absl::StrCat(att, "time_mix_", hf ? name : letter),
                        config.hidden_size);
    };
    Rwkv4TimeMixDescription d;
    d.width = width;
    d.mix_k = mix("key", "k");
    d.mix_v = mix("value", "v");
    d.mix_r = mix("receptance", "r");
    d.k = Matrix(att + "key.weight");
    d.v = Matrix(att + "value.weight");
    d.r = Matrix(att + "receptance.weight");
    d.o = Matrix(att + "output.weight");
    d.decay = Ref(att + "time_decay");
    d.bonus = Ref(att + "time_first");
    return d;
  };
  return Build(config, hf ? kHf : kOriginal, time_mix,
               [&](const std::string& ffn) {
                 return ChannelMix(checkpoint, ffn, config.hidden_size, hf);
               });
}

// What no layer of an original RWKV-5 or 6 differs in.
struct OriginalConfig {
  RwkvConfig common;
  int64_t heads = 0;
  float output_epsilon = 0;
};

// The number of heads is in the shape of the tensor `shaped`.
absl::StatusOr<OriginalConfig> ReadOriginal(ConfigReader& reader,
                                            const Checkpoint& checkpoint,
                                            const std::string& shaped,
                                            double output_epsilon) {
  OriginalConfig config;
  config.common = ReadCommon(reader);
  config.output_epsilon = static_cast<float>(
      reader.Number("group_norm_epsilon", 0, 1, /*fallback=*/output_epsilon));
  RETURN_IF_ERROR(reader.status());
  const int64_t width = config.common.hidden_size;
  config.heads = DimensionOf(checkpoint, shaped, 0);
  if (width % config.heads != 0 || width / config.heads > kMaxKeyDim) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", Quoted(shaped), " is for ", config.heads,
                     " heads, which config.json's hidden_size = ", width,
                     " does not allow"));
  }
  return config;
}

// What the original layouts of RWKV-5 and 6 have in common.
RwkvTimeMixDescription OriginalHeads(const OriginalConfig& config,
                                     const std::string& att, bool gated) {
  RwkvTimeMixDescription d;
  d.heads = config.heads;
  d.key_dim = d.value_dim = config.common.hidden_size / d.heads;
  d.r = Matrix(att + "receptance.weight");
  d.k = Matrix(att + "key.weight");
  d.v = Matrix(att + "value.weight");
  d.o = Matrix(att + "output.weight");
  if (gated) d.gate = Matrix(att + "gate.weight");
  d.output_epsilon = config.output_epsilon;
  d.output_weight = Ref(att + "ln_x.weight");
  d.output_bias = Ref(att + "ln_x.bias");
  return d;
}

RwkvTimeMixDescription Rwkv5TimeMix(const OriginalConfig& config,
                                    const Checkpoint& checkpoint,
                                    const std::string& att) {
  const int64_t width = config.common.hidden_size;
  // 5.0 has neither of the gate's two tensors; one without the other is missed.
  const bool gated = checkpoint.Find(att + "gate.weight") != nullptr ||
                     checkpoint.Find(att + "time_mix_g") != nullptr;
  RwkvTimeMixDescription d = OriginalHeads(config, att, gated);
  const auto mix = [&](char letter) {
    return ShareOfNow(checkpoint, att + "time_mix_" + letter, width);
  };
  d.mixes[kRwkvR] = mix('r');
  d.mixes[kRwkvK] = mix('k');
  d.mixes[kRwkvV] = mix('v');
  if (gated) d.mixes[kRwkvG] = mix('g');
  d.decay = OfHeads(checkpoint, att + "time_decay", d.heads, width);
  // 5.0 and 5.1 keep the logarithm, under another name.
  d.bonus_exponential = checkpoint.Find(att + "time_faaaa") == nullptr;
  d.bonus = OfHeads(checkpoint,
                    att + (d.bonus_exponential ? "time_first" : "time_faaaa"),
                    d.heads, width);
  return d;
}

RwkvTimeMixDescription Rwkv6TimeMix(const OriginalConfig& config,
                                    const Checkpoint& checkpoint,
                                    const std::string& att) {
  const int64_t width = config.common.hidden_size;
  RwkvTimeMixDescription d = OriginalHeads(config, att, /*gated=*/true);
  const auto mix = [&](char letter) {
    return ShareOfBefore(checkpoint, att + "time_maa_" + letter, width);
  };
  d.mixes = {mix('r'), mix('w'), mix('k'), mix('v'), mix('g')};
  RwkvDynamicMixDescription& dynamic = d.dynamic_mix.emplace();
  dynamic.mix = mix('x');
  // From the first matrix, so that one of another shape is named itself.
  dynamic.rank =
      std::max<int64_t>(DimensionOf(checkpoint, att + "time_maa_w1", 1) /
                            static_cast<int64_t>(kRwkvParts),
                        1);
  dynamic.down = Matrix(att + "time_maa_w1");
  dynamic.down.transposed = true;
  dynamic.up = Ref(att + "time_maa_w2");
  dynamic.by_output = false;
  dynamic.places = {3, 0, 1, 2, 4};  // w, k, v, r, g
  LoraDescription& lora = d.decay_lora.emplace();
  lora.rank = DimensionOf(checkpoint, att + "time_decay_w1", 1);
  lora.down = Matrix(att + "time_decay_w1");
  lora.up = Matrix(att + "time_decay_w2");
  lora.down.transposed = lora.up.transposed = true;
  lora.up.bias = Ref(att + "time_decay");
  lora.up.bias_shape = Shaped(checkpoint, att + "time_decay", width).shape;
  d.bonus = Shaped(checkpoint, att + "time_faaaa", width);
  return d;
}

// RWKV-6 in the original layout.
absl::StatusOr<ModelDescription> DescribeOriginalRwkv6(
    ConfigReader& reader, const Checkpoint& checkpoint) {
  // 1e-5 of the output divided by 8 (head_size_divisor).
  ASSIGN_OR_RETURN(const OriginalConfig config,
                   ReadOriginal(reader, checkpoint, "blocks.0.att.time_faaaa",
                                /*output_epsilon=*/64e-5));
  const int64_t width = config.common.hidden_size;
  return Build(
      config.common, kOriginal,
      [&](const std::string& att) {
        return Rwkv6TimeMix(config, checkpoint, att);
      },
      [&](const std::string& ffn) {
        RwkvChannelMixDescription d =
            ChannelMix(checkpoint, ffn, width, /*long_names=*/false);
        d.mix_k = ShareOfBefore(checkpoint, ffn + "time_maa_k", width);
        d.mix_r = ShareOfBefore(checkpoint, ffn + "time_maa_r", width);
        return d;
      });
}

struct FlaRwkv6 {
  RwkvConfig common;
  int64_t heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t mix_rank = 0;
  int64_t decay_rank = 0;
  int64_t ffn_width = 0;
};

FlaRwkv6 ReadFlaRwkv6(ConfigReader& reader) {
  FlaRwkv6 c;
  c.common = ReadCommon(reader);
  const int64_t hidden = c.common.hidden_size;
  c.heads = reader.Int("num_heads", 1, kMaxWidth, /*fallback=*/4);
  c.key_dim = ReadFlaHeadDim(reader, "expand_k", hidden, c.heads,
                             /*expand=*/0.5);
  c.value_dim = ReadFlaHeadDim(reader, "expand_v", hidden, c.heads);
  CheckKeyDim(reader, "expand_k", c.key_dim, kMaxKeyDim);
  c.mix_rank = reader.Int("proj_low_rank_dim", 1, kMaxWidth, /*fallback=*/32);
  c.decay_rank = reader.Int("gate_low_rank_dim", 1, kMaxWidth, /*fallback=*/64);
  c.common.norm_eps = c.common.final_norm_eps =
      static_cast<float>(reader.Number("norm_eps", 0, 1, /*fallback=*/1e-5));
  const double ratio =
      reader.Number("hidden_ratio", 1e-3, 64, /*fallback=*/3.5);
  const auto wide = static_cast<int64_t>(static_cast<double>(hidden) * ratio);
  int64_t derived = (wide + 31) / 32 * 32;
  if (!reader.Has("intermediate_size")) {
    derived =
        CheckedWidth(reader, "hidden_ratio", "feed-forward parts", derived);
  }
  c.ffn_width = reader.Int("intermediate_size", 1, kMaxWidth, derived);
  for (const char* field : {"norm_first", "norm_bias"}) {
    if (!reader.Bool(field, /*fallback=*/true)) {
      reader.Refuse(field, "is false, which is not supported");
    }
  }
  const std::string activation = reader.String("hidden_act", "sqrelu");
  if (activation != "sqrelu") {
    reader.Refuse("hidden_act", absl::StrCat("is ", Quoted(activation),
                                             "; supported is 'sqrelu'"));
  }
  if (reader.Has("attn")) {
    reader.Refuse("attn",
                  "asks for softmax attention in some layers, which is not "
                  "supported for RWKV-6");
  }
  return c;
}

RwkvTimeMixDescription FlaTimeMix(const Checkpoint& checkpoint,
                                  const FlaRwkv6& c, const std::string& attn) {
  const int64_t hidden = c.common.hidden_size;
  RwkvTimeMixDescription d;
  d.heads = c.heads;
  d.key_dim = c.key_dim;
  d.value_dim = c.value_dim;
  for (size_t part = 0; part < kRwkvParts; ++part) {
    d.mixes[part] = {
        .share = {.tensor = Ref(attn + "x_bias"),
                  .shape = {static_cast<int64_t>(kRwkvParts), hidden}},
        .first = static_cast<int64_t>(part) * hidden};
  }
  RwkvDynamicMixDescription& dynamic = d.dynamic_mix.emplace();
  dynamic.mix = ShareOfBefore(checkpoint, attn + "x_proj.0.mu", hidden);
  dynamic.rank = c.mix_rank;
  dynamic.down = Matrix(attn + "x_proj.0.linear.weight");
  dynamic.up = Ref(attn + "x_proj.2.weight");
  dynamic.by_output = true;
  dynamic.places = {0, 1, 2, 3, 4};
  d.r = Matrix(attn + "r_proj.linear.weight");
  d.k = Matrix(attn + "k_proj.linear.weight");
  d.v = Matrix(attn + "v_proj.linear.weight");
  d.gate = Matrix(attn + "g_proj.linear.weight");
  d.o = Matrix(attn + "o_proj.weight");
  LoraDescription& lora = d.decay_lora.emplace();
  lora.rank = c.decay_rank;
  lora.down = Matrix(attn + "w_proj.linear.lora.0.weight");
  lora.up = Matrix(attn + "w_proj.linear.lora.2.weight");
  lora.up.bias = Ref(attn + "w_proj.linear.lora.2.bias");
  d.bonus = Shaped(checkpoint, attn + "bonus", c.heads * c.key_dim);
  d.output_epsilon = c.common.norm_eps;
  d.output_weight = Ref(attn + "g_norm.weight");
  d.output_bias = Ref(attn + "g_norm.bias");
  return d;
}

absl::StatusOr<ModelDescription> DescribeFlaRwkv6(
    ConfigReader& reader, const Checkpoint& checkpoint) {
  const FlaRwkv6 c = ReadFlaRwkv6(reader);
  RETURN_IF_ERROR(reader.status());
  return Build(
      c.common, kFla,
      [&](const std::string& attn) { return FlaTimeMix(checkpoint, c, attn); },
      [&](const std::string& ffn) {
        const int64_t hidden = c.common.hidden_size;
        RwkvChannelMixDescription d;
        d.width = c.ffn_width;
        d.mix_k = ShareOfBefore(checkpoint, ffn + "key.mu", hidden);
        d.mix_r = ShareOfBefore(checkpoint, ffn + "receptance.mu", hidden);
        d.key = Matrix(ffn + "key.linear.weight");
        d.value = Matrix(ffn + "value.weight");
        d.receptance = Matrix(ffn + "receptance.linear.weight");
        return d;
      });
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeHfRwkv4(ConfigReader& config,
                                                 const Checkpoint& checkpoint) {
  return DescribeRwkv4(config, checkpoint, /*hf=*/true);
}

absl::StatusOr<ModelDescription> DescribeOriginalRwkv4(
    ConfigReader& config, const Checkpoint& checkpoint) {
  return DescribeRwkv4(config, checkpoint, /*hf=*/false);
}

absl::StatusOr<ModelDescription> DescribeRwkv5(ConfigReader& reader,
                                               const Checkpoint& checkpoint) {
  // rwkv.cpp and the rwkv package take 1e-5; the training code divides the
  // output by 8 first, which is 64e-5.
  ASSIGN_OR_RETURN(const OriginalConfig config,
                   ReadOriginal(reader, checkpoint, "blocks.0.att.time_decay",
                                /*output_epsilon=*/1e-5));
  return Build(
      config.common, kOriginal,
      [&](const std::string& att) {
        return Rwkv5TimeMix(config, checkpoint, att);
      },
      [&](const std::string& ffn) {
        return ChannelMix(checkpoint, ffn, config.common.hidden_size,
                          /*long_names=*/false);
      });
}

absl::StatusOr<ModelDescription> DescribeRwkv6(ConfigReader& config,
                                               const Checkpoint& checkpoint) {
  const bool original = checkpoint.Find(kOriginal.embedding) != nullptr;
  return original ? DescribeOriginalRwkv6(config, checkpoint)
                  : DescribeFlaRwkv6(config, checkpoint);
}

}  // namespace reprise
