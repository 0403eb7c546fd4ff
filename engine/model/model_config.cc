#include "engine/model/model_config.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status_macros.h"
#include "engine/model/adapters.h"
#include "engine/model/config_reader.h"
#include "engine/model/json_text.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

constexpr char kConfigFile[] = "config.json";
constexpr char kGenerationFile[] = "generation_config.json";
constexpr char kPositionsField[] = "max_position_embeddings";
constexpr int64_t kMaxPositions = int64_t{1} << 40;
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

absl::StatusOr<Family> FindFamily(ConfigReader& config) {
  if (!config.Has("model_type") && config.Has("ssm_cfg")) return kStateSpaces;
  const std::string model_type = config.String("model_type");
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return family;
  }
  config.Refuse(
      "model_type",
      absl::StrCat("is ", Quoted(model_type), "; known are ",
                   absl::StrJoin(kFamilies, ", ",
                                 [](std::string* out, const Family& family) {
                                   out->append(family.model_type);
                                 })));
  return config.status();
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
  ASSIGN_OR_RETURN(const nlohmann::json json,
                   ReadJsonObject(folder / kConfigFile, kConfigLimits));
  ConfigReader config(json, kConfigFile);
  ASSIGN_OR_RETURN(const Family family, FindFamily(config));
  ASSIGN_OR_RETURN(ModelDescription model, family.adapter(config, checkpoint));
  model.family = family.model_type;
  model.config_text = config.UsedFields();

  // With readers of their own: which tokens end a text, and how long one may
  // be, does not change what a state means, so it stays out of config_text.
  ConfigReader tokens(json, kConfigFile);
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
