// Mamba and Mamba-2, under the names of Hugging Face's transformers and of
// state-spaces/mamba: the tensors are called alike, the config fields not.
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/short_conv_kernel.h"
#include "engine/kernels/state_kernels.h"
#include "engine/model/adapters.h"
#include "engine/model/config_checks.h"
#include "engine/model/json_text.h"
#include "engine/model/mamba_descriptions.h"
#include "engine/model/short_conv_description.h"

namespace reprise {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Of either family; what only one of them has is 0 in the other.
struct MambaConfig {
  bool second = false;  // Mamba-2
  int64_t vocab_size = 0;
  int64_t d_model = 0;
  int64_t layers = 0;
  int64_t inner = 0;
  int64_t state_size = 0;
  int64_t taps = 0;
  int64_t dt_rank = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t groups = 0;
  int64_t norm_groups = 0;
  float dt_min = 0;
  float dt_max = 0;
  float norm_eps = 0;
  bool biased = false;
  bool conv_biased = true;
  bool tied = true;
  std::string width_field;  // that sets d_model
  std::string inner_fields;
};

// The names of the fields that both families have under each naming.
struct FieldNames {
  const char* expand;
  const char* state_size;
  const char* taps;
  const char* dt_rank;
  const char* head_dim;
  const char* groups;
  const char* bias;
  const char* conv_bias;
};
constexpr FieldNames kHfNames = {
    "expand",   "state_size", "conv_kernel", "time_step_rank",
    "head_dim", "n_groups",   "use_bias",    "use_conv_bias"};
constexpr FieldNames kOriginalNames = {"ssm_cfg.expand",  "ssm_cfg.d_state",
                                       "ssm_cfg.d_conv",  "ssm_cfg.dt_rank",
                                       "ssm_cfg.headdim", "ssm_cfg.ngroups",
                                       "ssm_cfg.bias",    "ssm_cfg.conv_bias"};

void ReadInner(ConfigReader& config, const FieldNames& names,
               MambaConfig& result) {
  const double expand = config.Number(names.expand, 0.1, 64, /*fallback=*/2);
  result.inner = CheckedWidth(
      config, names.expand, "the inner part",
      static_cast<int64_t>(expand * static_cast<double>(result.d_model)));
  result.inner_fields = absl::StrCat(result.width_field, " and ", names.expand);
  result.state_size = config.Int(names.state_size, 1, kMaxKeyDim,
                                 /*fallback=*/result.second ? 128 : 16);
  result.taps = config.Int(names.taps, 1, kMaxConvTaps, /*fallback=*/4);
  result.biased = config.Bool(names.bias, /*fallback=*/false);
  result.conv_biased = config.Bool(names.conv_bias, /*fallback=*/true);
  if (result.second) return;
  const int64_t automatic = (result.d_model + 15) / 16;
  const bool text = config.IsString(names.dt_rank);
  if (text && config.String(names.dt_rank) != "auto") {
    config.Refuse(names.dt_rank, "is neither a number nor 'auto'");
  }
  result.dt_rank =
      text ? automatic : config.Int(names.dt_rank, 1, kMaxWidth, automatic);
}

void ReadHeads(ConfigReader& config, const FieldNames& names,
               MambaConfig& result) {
  result.head_dim = config.Int(names.head_dim, 1, kMaxWidth, /*fallback=*/64);
  if (result.inner % result.head_dim != 0) {
    config.Refuse(
        names.head_dim,
        absl::StrCat("is ", result.head_dim,
                     ", which does not divide the inner width ", result.inner));
  }
  result.heads = result.inner / result.head_dim;
  result.groups = config.Int(names.groups, 1, kMaxWidth, /*fallback=*/1);
  if (result.heads % result.groups != 0) {
    config.Refuse(names.groups,
                  absl::StrCat("is ", result.groups, ", which does not divide ",
                               result.heads, " heads"));
  }
}

void ReadTimeLimits(ConfigReader& config, const char* field,
                    MambaConfig& result) {
  result.dt_max = std::numeric_limits<float>::infinity();
  if (!config.Has(field)) return;
  const std::vector<double> limits = config.NumberList(field, 0, kInfinity);
  if (limits.size() != 2 || limits[0] > limits[1]) {
    config.Refuse(field, "is not [least, largest]");
    return;
  }
  result.dt_min = static_cast<float>(limits[0]);
  result.dt_max = static_cast<float>(limits[1]);
}

// What this project computes in one way only.
void RefuseVariants(ConfigReader& config) {
  const std::string activation = config.String("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    config.Refuse("hidden_act", absl::StrCat("is ", Quoted(activation),
                                             "; supported is 'silu'"));
  }
  if (!config.Bool("rms_norm", /*fallback=*/true)) {
    config.Refuse("rms_norm", "is false; only RMS norms are supported");
  }
}

MambaConfig ReadHfConfig(ConfigReader& config, bool second) {
  MambaConfig result;
  result.second = second;
  result.vocab_size = config.Int("vocab_size", 1, kMaxVocab);
  result.d_model = config.Int("hidden_size", 1, kMaxWidth);
  result.width_field = "hidden_size";
  result.layers = config.Int("num_hidden_layers", 1, kMaxLayers);
  result.norm_eps = static_cast<float>(
      config.Number("layer_norm_epsilon", 0, 1, /*fallback=*/1e-5));
  result.tied = config.Bool("tie_word_embeddings", /*fallback=*/true);
  RefuseVariants(config);
  ReadInner(config, kHfNames, result);
  if (second) {
    ReadHeads(config, kHfNames, result);
    const int64_t heads =
        config.Int("num_heads", 1, kMaxWidth, /*fallback=*/result.heads);
    if (heads != result.heads) {
      config.Refuse("num_heads",
                    absl::StrCat("is ", heads, ", but expand * hidden_size / ",
                                 "head_dim is ", result.heads));
    }
    ReadTimeLimits(config, "time_step_limit", result);
    // transformers normalises over the whole width, whatever n_groups is.
    result.norm_groups = 1;
    return result;
  }
  const int64_t inner = config.Int("intermediate_size", 1, kMaxWidth,
                                   /*fallback=*/result.inner);
  if (inner != result.inner) {
    config.Refuse("intermediate_size",
                  absl::StrCat("is ", inner, ", but expand * hidden_size is ",
                               result.inner));
  }
  return result;
}

MambaConfig ReadOriginalConfig(ConfigReader& config) {
  MambaConfig result;
  const std::string layer = config.String("ssm_cfg.layer", "Mamba1");
  result.second = layer == "Mamba2";
  if (!result.second && layer != "Mamba1") {
    config.Refuse("ssm_cfg.layer",
                  absl::StrCat("is ", Quoted(layer),
                               "; supported are 'Mamba1' and 'Mamba2'"));
  }
  const int64_t vocab_size = config.Int("vocab_size", 1, kMaxVocab);
  const int64_t multiple =
      config.Int("pad_vocab_size_multiple", 1, 65536, /*fallback=*/8);
  result.vocab_size = (vocab_size + multiple - 1) / multiple * multiple;
  result.d_model = config.Int("d_model", 1, kMaxWidth);
  result.width_field = "d_model";
  result.layers = config.Int("n_layer", 1, kMaxLayers);
  result.norm_eps = 1e-5F;
  result.tied = config.Bool("tie_embeddings", /*fallback=*/true);
  RefuseVariants(config);
  if (config.Int("d_intermediate", 0, kMaxWidth, /*fallback=*/0) != 0) {
    config.Refuse("d_intermediate",
                  "asks for feed-forward parts, which is not supported");
  }
  if (!config.IntList("attn_layer_idx", 0, kMaxLayers).empty()) {
    config.Refuse("attn_layer_idx",
                  "asks for attention in some layers, which is not supported");
  }
  ReadInner(config, kOriginalNames, result);
  if (result.second) {
    ReadHeads(config, kOriginalNames, result);
    ReadTimeLimits(config, "ssm_cfg.dt_limit", result);
    result.norm_groups = result.groups;
  }
  return result;
}

NormDescription Rms(const std::string& name, const MambaConfig& config) {
  NormDescription norm;
  norm.eps = config.norm_eps;
  norm.weight = {name, config.width_field};
  return norm;
}

LinearRef Projection(const std::string& base, const MambaConfig& config,
                     bool biased) {
  LinearRef ref;
  ref.weight = {base + ".weight", config.inner_fields};
  if (biased) ref.bias = {base + ".bias", config.inner_fields};
  return ref;
}

ShortConvDescription Conv(const std::string& base, const MambaConfig& config,
                          int64_t channels) {
  ShortConvDescription conv;
  conv.channels = channels;
  conv.taps = config.taps;
  conv.weight = {base + ".weight", config.inner_fields};
  if (config.conv_biased) conv.bias = {base + ".bias", config.inner_fields};
  return conv;
}

MambaDescription First(const std::string& mixer, const MambaConfig& config) {
  MambaDescription d;
  d.inner = config.inner;
  d.state_size = config.state_size;
  d.dt_rank = config.dt_rank;
  d.in = Projection(mixer + "in_proj", config, config.biased);
  d.conv = Conv(mixer + "conv1d", config, config.inner);
  d.x_proj = Projection(mixer + "x_proj", config, false);
  d.dt_proj = Projection(mixer + "dt_proj", config, true);
  d.a_log = {mixer + "A_log", config.inner_fields};
  d.d = {mixer + "D", config.inner_fields};
  d.out = Projection(mixer + "out_proj", config, config.biased);
  return d;
}

Mamba2Description Second(const std::string& mixer, const MambaConfig& config) {
  Mamba2Description d;
  d.heads = config.heads;
  d.head_dim = config.head_dim;
  d.state_size = config.state_size;
  d.groups = config.groups;
  d.in = Projection(mixer + "in_proj", config, config.biased);
  d.conv = Conv(mixer + "conv1d", config,
                config.inner + 2 * config.groups * config.state_size);
  d.a_log = {mixer + "A_log", config.inner_fields};
  d.d = {mixer + "D", config.inner_fields};
  d.dt_bias = {mixer + "dt_bias", config.inner_fields};
  d.dt_min = config.dt_min;
  d.dt_max = config.dt_max;
  d.norm_weight = {mixer + "norm.weight", config.inner_fields};
  d.norm_eps = config.norm_eps;
  d.norm_groups = config.norm_groups;
  d.out = Projection(mixer + "out_proj", config, config.biased);
  return d;
}

absl::StatusOr<ModelDescription> Describe(ConfigReader& reader,
                                          const MambaConfig& config,
                                          const Checkpoint& checkpoint) {
  RETURN_IF_ERROR(reader.status());
  ModelDescription model;
  model.vocab_size = config.vocab_size;
  model.d_model = config.d_model;
  const bool original = checkpoint.Find("backbone.embedding.weight") != nullptr;
  model.embedding = {
      original ? "backbone.embedding.weight" : "backbone.embeddings.weight",
      "vocab_size and " + config.width_field};
  model.head.weight = {config.tied ? model.embedding.name : "lm_head.weight",
                       model.embedding.fields};
  model.final_norm = Rms("backbone.norm_f.weight", config);
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = absl::StrCat("backbone.layers.", i, ".");
    const std::string mixer = layer + "mixer.";
    SublayerDescription sublayer;
    sublayer.norm = Rms(layer + "norm.weight", config);
    if (config.second) {
      sublayer.mixer = Second(mixer, config);
    } else {
      sublayer.mixer = First(mixer, config);
    }
    model.layers.push_back({std::move(sublayer)});
  }
  return model;
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeHfMamba(ConfigReader& config,
                                                 const Checkpoint& checkpoint) {
  return Describe(config, ReadHfConfig(config, /*second=*/false), checkpoint);
}

absl::StatusOr<ModelDescription> DescribeHfMamba2(
    ConfigReader& config, const Checkpoint& checkpoint) {
  return Describe(config, ReadHfConfig(config, /*second=*/true), checkpoint);
}

absl::StatusOr<ModelDescription> DescribeStateSpacesMamba(
    ConfigReader& config, const Checkpoint& checkpoint) {
  return Describe(config, ReadOriginalConfig(config), checkpoint);
}

}  // namespace reprise
