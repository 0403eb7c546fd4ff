// Qwen3-Next and Qwen3.5 in Hugging Face's layout: gated DeltaNet in most
// layers, softmax attention with an output gate in the others, feed-forward
// parts that are dense or a mixture of experts.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/delta_kernels.h"
#include "engine/kernels/short_conv_kernel.h"
#include "engine/model/adapters.h"
#include "engine/model/delta_description.h"
#include "engine/model/hf_attention.h"
#include "engine/model/hf_config.h"
#include "engine/model/moe_description.h"
#include "engine/model/softmax_attention_description.h"

namespace reprise {
namespace {

// Published models have 16 and 512. They bound what a description of the model
// takes, before any tensor is looked for.
constexpr int64_t kMaxKeyHeads = 512;
constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxExpertsInAll = int64_t{1} << 17;

// How one of the two names and stacks the tensors of linear layers and experts.
enum class Layout { kQwen3Next, kQwen35 };

struct MoeConfig {
  int64_t experts = 0;  // 0: no layer has any
  int64_t per_row = 0;
  int64_t width = 0;
  int64_t shared_width = 0;
  bool sum_to_one = true;
};

struct QwenConfig {
  HfConfig common;
  Layout layout = Layout::kQwen3Next;
  DeltaNetDescription linear;             // without the names of its tensors
  SoftmaxAttentionDescription attention;  // likewise
  HfAttentionParts attention_parts;
  MoeConfig moe;
  // One for each layer.
  std::vector<bool> is_linear;
  std::vector<bool> is_dense;
  int64_t ffn_width = 0;  // of dense layers
};

DeltaNetDescription ReadLinearAttention(ConfigReader& config) {
  DeltaNetDescription d;
  d.key_heads = config.Int("linear_num_key_heads", 1, kMaxKeyHeads);
  d.heads = config.Int("linear_num_value_heads", 1, kMaxWidth);
  if (d.heads % d.key_heads != 0) {
    config.Refuse("linear_num_value_heads",
                  absl::StrCat("is ", d.heads,
                               ", which linear_num_key_heads = ", d.key_heads,
                               " does not divide"));
  }
  d.key_dim = config.Int("linear_key_head_dim", 1, kMaxDeltaKeyDim);
  d.value_dim = config.Int("linear_value_head_dim", 1, kMaxWidth);
  d.scale = 1 / std::sqrt(static_cast<float>(d.key_dim));
  d.convolutions = {
      {.field = "conv",
       .conv = {.channels = 2 * d.key_heads * d.key_dim + d.heads * d.value_dim,
                .taps = config.Int("linear_conv_kernel_dim", 1, kMaxConvTaps,
                                   /*fallback=*/4),
                .weight = {},
                .bias = {},
                .silu = true}}};
  return d;
}

// Which layers are linear. As in transformers, 'full_attention_interval' is
// only for configs without 'layer_types'.
std::vector<bool> ReadLayerKinds(ConfigReader& config, int64_t layers) {
  std::vector<bool> linear =
      ReadHfLayerTypes(config, layers, "linear_attention", "full_attention");
  if (!linear.empty()) return linear;
  const int64_t interval =
      config.Int("full_attention_interval", 1, kMaxLayers, /*fallback=*/4);
  for (int64_t i = 0; i < layers; ++i) {
    linear.push_back((i + 1) % interval != 0);
  }
  return linear;
}

MoeConfig ReadMoe(ConfigReader& config, int64_t layers) {
  MoeConfig moe;
  moe.experts = config.Int("num_experts", 0, kMaxExperts);
  if (moe.experts == 0) return moe;
  if (moe.experts * layers > kMaxExpertsInAll) {
    config.Refuse(
        "num_experts",
        absl::StrCat("times num_hidden_layers is ", moe.experts * layers,
                     ", the limit is ", kMaxExpertsInAll));
  }
  moe.per_row = config.Int("num_experts_per_tok", 1,
                           std::min(moe.experts, kMaxExpertsPerRow));
  moe.width = config.Int("moe_intermediate_size", 1, kMaxWidth);
  moe.shared_width =
      config.Int("shared_expert_intermediate_size", 1, kMaxWidth);
  moe.sum_to_one = config.Bool("norm_topk_prob", /*fallback=*/true);
  return moe;
}

// Qwen3-Next's: which layers have no experts.
std::vector<bool> ReadDenseLayers(ConfigReader& config, int64_t layers,
                                  const MoeConfig& moe) {
  const int64_t step =
      config.Int("decoder_sparse_step", 1, kMaxLayers, /*fallback=*/1);
  std::vector<bool> dense;
  for (int64_t i = 0; i < layers; ++i) {
    dense.push_back(moe.experts == 0 || (i + 1) % step != 0);
  }
  for (const int64_t i : config.IntList("mlp_only_layers", 0, layers - 1)) {
    dense[static_cast<size_t>(i)] = true;
  }
  return dense;
}

// `read_ffn` reads what the three families of this file differ in.
absl::StatusOr<QwenConfig> ReadConfig(
    ConfigReader& config, const Checkpoint& checkpoint, Layout layout,
    absl::FunctionRef<void(QwenConfig&)> read_ffn) {
  QwenConfig result;
  result.common = ReadHfConfig(config);
  result.common.norm_less_one = true;
  // Files with a vision part have the text part one level deeper.
  const std::string deeper = "model.language_model.";
  if (checkpoint.Find(deeper + "embed_tokens.weight") != nullptr) {
    result.common.prefix = deeper;
  }
  result.layout = layout;
  result.linear = ReadLinearAttention(config);
  result.attention = ReadHfAttention(
      config, result.common, {.head_dim = 256, .rotary_fraction = 0.25});
  result.attention.output_gate =
      config.Bool("attn_output_gate", /*fallback=*/true);
  const bool bias = config.Bool("attention_bias", /*fallback=*/false);
  result.attention_parts = {.qkv_bias = bias, .o_bias = bias, .qk_norm = true};
  result.is_linear = ReadLayerKinds(config, result.common.layers);
  read_ffn(result);
  const std::vector<bool>& dense = result.is_dense;
  if (std::find(dense.begin(), dense.end(), true) != dense.end()) {
    result.ffn_width = config.Int("intermediate_size", 1, kMaxWidth);
  }
  RETURN_IF_ERROR(config.status());
  return result;
}

// Matrices that are parts of one tensor, each of some rows of every of
// `blocks` equal blocks.
class Stacked {
 public:
  Stacked(std::string name, std::string fields, int64_t blocks,
          int64_t block_rows, int64_t in)
      : whole_{.weight = {std::move(name), std::move(fields)},
               .bias = {},
               .stored_shape = {blocks * block_rows, in}},
        blocks_(blocks),
        block_rows_(block_rows) {}

  // The next `rows` rows of every block.
  LinearRef Next(int64_t rows) {
    LinearRef part = whole_;
    for (int64_t i = 0; i < blocks_; ++i) {
      part.rows.push_back({i * block_rows_ + taken_, rows});
    }
    taken_ += rows;
    return part;
  }

 private:
  const LinearRef whole_;
  const int64_t blocks_;
  const int64_t block_rows_;
  int64_t taken_ = 0;  // rows of each block
};

constexpr char kKeyFields[] =
    "hidden_size, linear_num_key_heads and linear_key_head_dim";
constexpr char kValueFields[] =
    "hidden_size, linear_num_value_heads and linear_value_head_dim";
constexpr char kHeadFields[] = "hidden_size and linear_num_value_heads";
constexpr char kAllFields[] =
    "hidden_size, linear_num_key_heads, linear_key_head_dim, "
    "linear_num_value_heads and linear_value_head_dim";

// A block for every key head, with what belongs to its value heads.
void NameProjectionsOfQwen3Next(const std::string& attn, int64_t in,
                                DeltaNetDescription& d) {
  const int64_t per_key = d.heads / d.key_heads;
  const int64_t values = per_key * d.value_dim;
  Stacked qkvz(attn + "in_proj_qkvz.weight", kAllFields, d.key_heads,
               2 * d.key_dim + 2 * values, in);
  d.q = qkvz.Next(d.key_dim);
  d.k = qkvz.Next(d.key_dim);
  d.v = qkvz.Next(values);
  d.gate = qkvz.Next(values);
  Stacked ba(attn + "in_proj_ba.weight", kHeadFields, d.key_heads, 2 * per_key,
             in);
  d.beta = ba.Next(per_key);
  d.decay = ba.Next(per_key);
}

void NameProjectionsOfQwen35(const std::string& attn, int64_t in,
                             DeltaNetDescription& d) {
  const int64_t keys = d.key_heads * d.key_dim;
  const int64_t values = d.heads * d.value_dim;
  Stacked qkv(attn + "in_proj_qkv.weight", kAllFields, /*blocks=*/1,
              2 * keys + values, in);
  d.q = qkv.Next(keys);
  d.k = qkv.Next(keys);
  d.v = qkv.Next(values);
  d.gate = HfLinear(attn + "in_proj_z", kValueFields, /*bias=*/false);
  d.beta = HfLinear(attn + "in_proj_b", kHeadFields, /*bias=*/false);
  d.decay = HfLinear(attn + "in_proj_a", kHeadFields, /*bias=*/false);
}

DeltaNetDescription NamedLinearAttention(const QwenConfig& config,
                                         const std::string& attn) {
  DeltaNetDescription d = config.linear;
  const int64_t in = config.common.hidden_size;
  if (config.layout == Layout::kQwen3Next) {
    NameProjectionsOfQwen3Next(attn, in, d);
  } else {
    NameProjectionsOfQwen35(attn, in, d);
  }
  d.o = HfLinear(attn + "out_proj", kValueFields, /*bias=*/false);
  d.convolutions[0].conv.weight = {
      attn + "conv1d.weight",
      absl::StrCat("linear_conv_kernel_dim, ", kAllFields)};
  d.a_log = {attn + "A_log", "linear_num_value_heads"};
  d.dt_bias = {attn + "dt_bias", "linear_num_value_heads"};
  d.output_norm = HfNorm(config.common, attn + "norm", "linear_value_head_dim");
  d.output_norm.weight_less_one = false;  // unlike all others
  return d;
}

// Expert `i` of those that are stacked in two tensors.
ExpertDescription StackedExpert(const QwenConfig& config,
                                const std::string& experts, int64_t i) {
  const int64_t count = config.moe.experts;
  const int64_t width = config.moe.width;
  const int64_t model = config.common.hidden_size;
  const auto part = [&](std::string_view name, std::vector<int64_t> shape,
                        int64_t first, int64_t rows) {
    return LinearRef{
        .weight = {absl::StrCat(experts, ToAbsl(name)),
                   "num_experts, hidden_size and moe_intermediate_size"},
        .bias = {},
        .stored_shape = std::move(shape),
        .rows = {{first, rows}}};
  };
  const std::vector<int64_t> both = {count, 2 * width, model};
  return {.gate = part("gate_up_proj", both, 2 * i * width, width),
          .up = part("gate_up_proj", both, (2 * i + 1) * width, width),
          .down = part("down_proj", {count, model, width}, i * model, model)};
}

MoeFfnDescription NamedExperts(const QwenConfig& config,
                               const std::string& mlp) {
  const MoeConfig& moe = config.moe;
  const std::string experts = mlp + "experts.";
  MoeFfnDescription d;
  d.width = moe.width;
  d.per_row = moe.per_row;
  d.sum_to_one = moe.sum_to_one;
  d.router =
      HfLinear(mlp + "gate", "num_experts and hidden_size", /*bias=*/false);
  for (int64_t i = 0; i < moe.experts; ++i) {
    d.experts.push_back(config.layout == Layout::kQwen35
                            ? StackedExpert(config, experts, i)
                            : HfExpert(absl::StrCat(experts, i, "."),
                                       "hidden_size and moe_intermediate_size",
                                       /*bias=*/false));
  }
  d.shared_width = moe.shared_width;
  d.shared = HfExpert(mlp + "shared_expert.",
                      "hidden_size and shared_expert_intermediate_size",
                      /*bias=*/false);
  d.shared_gate =
      HfLinear(mlp + "shared_expert_gate", "hidden_size", /*bias=*/false);
  return d;
}

ModelDescription Describe(const QwenConfig& config) {
  ModelDescription model = HfModel(
      config.common, [&](int64_t i, const std::string& layer) -> HfLayer {
        const auto at = static_cast<size_t>(i);
        HfLayer result;
        if (config.is_linear[at]) {
          result.mixer = NamedLinearAttention(config, layer + "linear_attn.");
        } else {
          result.mixer =
              NamedHfAttention(config.common, layer + "self_attn.",
                               config.attention_parts, config.attention);
        }
        const std::string mlp = layer + "mlp.";
        if (config.is_dense[at]) {
          result.ffn = HfFfn(mlp, config.ffn_width, /*bias=*/false);
        } else {
          result.ffn = NamedExperts(config, mlp);
        }
        return result;
      });
  // A head that guesses several tokens, and what looks at pictures.
  model.ignored_prefixes = {"mtp.", "model.visual."};
  return model;
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeQwen3Next(
    ConfigReader& config, const Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(
      const QwenConfig read,
      ReadConfig(config, checkpoint, Layout::kQwen3Next, [&](QwenConfig& c) {
        c.moe = ReadMoe(config, c.common.layers);
        c.is_dense = ReadDenseLayers(config, c.common.layers, c.moe);
      }));
  return Describe(read);
}

absl::StatusOr<ModelDescription> DescribeQwen35(ConfigReader& config,
                                                const Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(
      const QwenConfig read,
      ReadConfig(config, checkpoint, Layout::kQwen35, [&](QwenConfig& c) {
        c.is_dense.assign(static_cast<size_t>(c.common.layers), true);
      }));
  return Describe(read);
}

absl::StatusOr<ModelDescription> DescribeQwen35Moe(
    ConfigReader& config, const Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(
      const QwenConfig read,
      ReadConfig(config, checkpoint, Layout::kQwen35, [&](QwenConfig& c) {
        c.moe = ReadMoe(config, c.common.layers);
        c.is_dense.assign(static_cast<size_t>(c.common.layers), false);
        if (c.moe.experts == 0) {
          config.Refuse("num_experts", "is 0; this family has experts");
        }
        if (!c.moe.sum_to_one) {
          config.Refuse("norm_topk_prob",
                        "is false; in this family it is true");
        }
        if (!config.IntList("mlp_only_layers", 0, kMaxLayers).empty()) {
          config.Refuse("mlp_only_layers",
                        "is not empty; in this family all layers have experts");
        }
      }));
  return Describe(read);
}

}  // namespace reprise
