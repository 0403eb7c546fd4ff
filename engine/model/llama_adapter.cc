// Llama and its close relatives in Hugging Face's layout: LlamaForCausalLM,
// MistralForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/adapters.h"
#include "engine/model/hf_attention.h"
#include "engine/model/hf_config.h"
#include "engine/model/softmax_attention_description.h"

namespace reprise {
namespace {

// Which layers attend to a window only, if the config gives one.
enum class Windows { kNever, kAllLayers, kUpperLayers };

// Where the families differ.
struct Traits {
  Windows windows = Windows::kNever;
  bool attention_bias_field = false;  // of q, k, v and o
  bool mlp_bias_field = false;
  bool qkv_bias = false;
  bool qk_norm = false;
  int64_t head_dim = 0;  // where the config has none; see HfAttentionDefaults
};

constexpr Traits kLlama = {.attention_bias_field = true,
                           .mlp_bias_field = true};
constexpr Traits kMistral = {.windows = Windows::kAllLayers};
constexpr Traits kQwen2 = {.windows = Windows::kUpperLayers, .qkv_bias = true};
constexpr Traits kQwen3 = {.windows = Windows::kUpperLayers,
                           .attention_bias_field = true,
                           .qk_norm = true,
                           .head_dim = 128};

constexpr char kWindow[] = "sliding_window";

// Mistral's.
int64_t ReadOneWindow(ConfigReader& config) {
  if (!config.Names(kWindow)) {
    // Here transformers would take 4096, without saying so.
    config.Refuse(kWindow, "is missing; it may be null, for no window");
  }
  return config.Has(kWindow) ? config.Int(kWindow, 1, kMaxAttentionWindow) : 0;
}

// Qwen's: one for each layer, from 'layer_types' if it is there.
std::vector<int64_t> ReadUpperWindows(ConfigReader& config, int64_t layers) {
  std::vector<int64_t> windows(static_cast<size_t>(layers));
  std::vector<bool> windowed =
      ReadHfLayerTypes(config, layers, "sliding_attention", "full_attention");
  if (!config.Bool("use_sliding_window", /*fallback=*/false)) {
    if (std::find(windowed.begin(), windowed.end(), true) != windowed.end()) {
      config.Refuse("use_sliding_window",
                    "is false, but layer_types has 'sliding_attention'");
    }
    return windows;
  }
  const int64_t window =
      config.Int(kWindow, 1, kMaxAttentionWindow, /*fallback=*/4096);
  if (windowed.empty()) {
    const int64_t full =
        config.Int("max_window_layers", 0, kMaxLayers, /*fallback=*/28);
    for (int64_t i = 0; i < layers; ++i) windowed.push_back(i >= full);
  }
  for (size_t i = 0; i < windows.size(); ++i) {
    if (windowed[i]) windows[i] = window;
  }
  return windows;
}

std::vector<int64_t> ReadWindows(ConfigReader& config, Windows windows,
                                 int64_t layers) {
  if (windows == Windows::kUpperLayers) {
    return ReadUpperWindows(config, layers);
  }
  int64_t window = 0;
  if (windows == Windows::kAllLayers) {
    window = ReadOneWindow(config);
  } else if (config.Has(kWindow)) {
    config.Refuse(kWindow, "is not null; this family attends to all tokens");
  }
  return std::vector<int64_t>(static_cast<size_t>(layers), window);
}

absl::StatusOr<ModelDescription> Describe(ConfigReader& config,
                                          const Traits& traits) {
  const HfConfig common = ReadHfConfig(config);
  const int64_t ffn_width = config.Int("intermediate_size", 1, kMaxWidth);
  const SoftmaxAttentionDescription attention =
      ReadHfAttention(config, common, {.head_dim = traits.head_dim});
  const bool all_biases = traits.attention_bias_field &&
                          config.Bool("attention_bias", /*fallback=*/false);
  const bool mlp_bias =
      traits.mlp_bias_field && config.Bool("mlp_bias", /*fallback=*/false);
  const std::vector<int64_t> windows =
      ReadWindows(config, traits.windows, common.layers);
  RETURN_IF_ERROR(config.status());

  const HfAttentionParts parts = {.qkv_bias = traits.qkv_bias || all_biases,
                                  .o_bias = all_biases,
                                  .qk_norm = traits.qk_norm};
  return HfModel(common, [&](int64_t i, const std::string& layer) -> HfLayer {
    SoftmaxAttentionDescription mixer =
        NamedHfAttention(common, layer + "self_attn.", parts, attention);
    mixer.window = windows[static_cast<size_t>(i)];
    return {mixer, HfFfn(layer + "mlp.", ffn_width, mlp_bias)};
  });
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeLlama(ConfigReader& config,
                                               const Checkpoint&) {
  return Describe(config, kLlama);
}

absl::StatusOr<ModelDescription> DescribeMistral(ConfigReader& config,
                                                 const Checkpoint&) {
  return Describe(config, kMistral);
}

absl::StatusOr<ModelDescription> DescribeQwen2(ConfigReader& config,
                                               const Checkpoint&) {
  return Describe(config, kQwen2);
}

absl::StatusOr<ModelDescription> DescribeQwen3(ConfigReader& config,
                                               const Checkpoint&) {
  return Describe(config, kQwen3);
}

}  // namespace reprise
