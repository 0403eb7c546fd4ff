#include "engine/model/model_config.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/model/adapters.h"
#include "engine/model/config_checks.h"
#include "engine/model/config_reader.h"
#include "engine/model/json_text.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

constexpr char kConfigFile[] = "config.json";
constexpr char kGenerationFile[] = "generation_config.json";
constexpr char kPositionsField[] = "max_position_embeddings";
constexpr char kTypeField[] = "model_type";
constexpr char kTextField[] = "text_config";
constexpr char kTiedField[] = "tie_word_embeddings";
constexpr JsonLimits kConfigLimits = {
    .max_bytes = 4 << 20, .max_depth = 32, .infinity = true};

struct Family {
  std::string_view model_type;
  Adapter adapter;
};

// Every model type this project loads.
constexpr Family kFamilies[] = {
    {"delta_net", &DescribeFlaDeltaNet},
    {"fast_transformers", &DescribeFastTransformers},
    {"gated_deltanet", &DescribeFlaGatedDeltaNet},
    {"gla", &DescribeFlaGatedLinearAttention},
    {"linear_attn", &DescribeFlaLinearAttention},
    {"llama", &DescribeLlama},
    {"mamba", &DescribeHfMamba},
    {"mamba2", &DescribeHfMamba2},
    {"mistral", &DescribeMistral},
    {"qwen2", &DescribeQwen2},
    {"qwen3", &DescribeQwen3},
    {"qwen3_5_moe_text", &DescribeQwen35Moe},
    {"qwen3_5_text", &DescribeQwen35},
    {"qwen3_next", &DescribeQwen3Next},
    {"retnet", &DescribeFlaRetention},
    {"rwkv", &DescribeHfRwkv4},
    {"rwkv4", &DescribeOriginalRwkv4},
    {"rwkv5", &DescribeRwkv5},
    {"rwkv6", &DescribeRwkv6},
    {"rwkv7", &DescribeRwkv7},
    {"transformer", &DescribeFlaTransformer},
};

// Of configs that name no model_type, as state-spaces/mamba writes them.
constexpr Family kStateSpaces = {"mamba_ssm", &DescribeStateSpacesMamba};

// Model types of configs that describe a model of pictures and text, with the
// text model's own config in an object.
constexpr std::string_view kMultimodal[] = {"qwen3_5", "qwen3_5_moe"};

// Those that people have, and this project does not load yet.
struct MissingFamily {
  std::string_view model_type;
  std::string_view name;
};
constexpr MissingFamily kMissingFamilies[] = {
    {"bamba", "Bamba"},
    {"falcon_h1", "Falcon-H1"},
    {"granitemoehybrid", "Granite 4"},
    {"jamba", "Jamba"},
    {"kimi_linear", "Kimi Linear"},
    {"lfm2", "LFM2"},
    {"recurrent_gemma", "RecurrentGemma"},
    {"xlstm", "xLSTM"},
};

absl::StatusOr<Family> FindFamily(ConfigReader& config) {
  if (!config.Has(kTypeField) && config.Has("ssm_cfg")) return kStateSpaces;
  const std::string model_type = config.String(kTypeField);
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return family;
  }
  for (const MissingFamily& family : kMissingFamilies) {
    if (family.model_type != model_type) continue;
    config.Refuse(
        kTypeField,
        absl::StrCat("is ", Quoted(model_type), "; models of the ",
                     ToAbsl(family.name), " family are not supported yet"));
  }
  config.Refuse(
      kTypeField,
      absl::StrCat("is ", Quoted(model_type), "; known are ",
                   absl::StrJoin(kFamilies, ", ",
                                 [](std::string* out, const Family& family) {
                                   out->append(family.model_type);
                                 })));
  return config.status();
}

// The part of a config.json that describes the model of text.
struct TextConfig {
  nlohmann::json object;
  std::string prefix;  // of its fields' names, in messages
};

absl::StatusOr<TextConfig> FindTextConfig(nlohmann::json whole) {
  ConfigReader config(whole, kConfigFile);
  const std::string model_type =
      config.IsString(kTypeField) ? config.String(kTypeField) : std::string();
  if (std::find(std::begin(kMultimodal), std::end(kMultimodal), model_type) ==
      std::end(kMultimodal)) {
    return TextConfig{std::move(whole), ""};
  }
  const auto found = whole.find(kTextField);
  if (found == whole.end() || !found->is_object()) {
    config.Refuse(kTextField, absl::StrCat("must be an object, as ", kTypeField,
                                           " is ", Quoted(model_type)));
    return config.status();
  }
  TextConfig text{*found, absl::StrCat(kTextField, ".")};
  // The head is outside of the text model, and so, in some files, is the word
  // on it.
  if (config.Has(kTiedField)) {
    const bool tied = config.Bool(kTiedField);
    ConfigReader inner(text.object, kConfigFile, text.prefix);
    if (inner.Bool(kTiedField, tied) != tied) {
      inner.Refuse(kTiedField, "differs from tie_word_embeddings outside");
    }
    RETURN_IF_ERROR(config.status());
    RETURN_IF_ERROR(inner.status());
    text.object[kTiedField] = tied;
  }
  return text;
}

// The special tokens that `config` names replace those in `model`.
absl::Status ReadSpecialTokens(ConfigReader& config, ModelDescription& model) {
  const int64_t last = model.vocab_size - 1;
  const std::vector<int64_t> eos = config.IntList("eos_token_id", 0, last);
  if (!eos.empty()) model.eos_tokens.assign(eos.begin(), eos.end());
  if (config.Has("bos_token_id")) {
    model.bos_token = static_cast<int32_t>(config.Int("bos_token_id", 0, last));
  }
  return config.status();
}

}  // namespace

absl::StatusOr<ModelDescription> LoadModelDescription(
    const std::string& dir, const Checkpoint& checkpoint) {
  const fs::path folder(dir);
  ASSIGN_OR_RETURN(nlohmann::json json,
                   ReadJsonObject(folder / kConfigFile, kConfigLimits));
  ASSIGN_OR_RETURN(const TextConfig text, FindTextConfig(std::move(json)));
  ConfigReader config(text.object, kConfigFile, text.prefix);
  ASSIGN_OR_RETURN(const Family family, FindFamily(config));
  ASSIGN_OR_RETURN(ModelDescription model, family.adapter(config, checkpoint));
  model.family = family.model_type;
  model.config_text = config.UsedFields();

  // With readers of their own: which tokens end a text, and how long one may
  // be, does not change what a state means, so it stays out of config_text.
  ConfigReader tokens(text.object, kConfigFile, text.prefix);
  if (!model.max_positions && tokens.Has(kPositionsField)) {
    model.max_positions = tokens.Int(kPositionsField, 1, kMaxPositions);
  }
  RETURN_IF_ERROR(ReadSpecialTokens(tokens, model));
  std::error_code ignored;
  if (fs::exists(folder / kGenerationFile, ignored)) {
    ASSIGN_OR_RETURN(const nlohmann::json generation,
                     ReadJsonObject(folder / kGenerationFile, kConfigLimits));
    ConfigReader reader(generation, kGenerationFile);
    RETURN_IF_ERROR(ReadSpecialTokens(reader, model));
  }
  return model;
}

}  // namespace reprise
