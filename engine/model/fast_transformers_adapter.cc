// Models of idiap/fast-transformers: the arguments of its
// TransformerEncoderBuilder as config fields, its modules' names as tensor
// names.
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/state_kernels.h"
#include "engine/model/adapters.h"
#include "engine/model/ffn_descriptions.h"
#include "engine/model/json_text.h"
#include "engine/model/linear_attention_description.h"

namespace reprise {
namespace {

struct EncoderConfig {
  int64_t vocab_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t ffn_width = 0;
  Activation activation = Activation::kRelu;
  float attention_eps = 0;
  float norm_eps = 0;
  bool final_norm = true;
  int64_t favor_features = 0;  // 0: the map is elu(x) + 1
  float favor_temperature = 0;

  int64_t d_model() const { return heads * value_dim; }
};

// What sets the width of the rows: the builder derives it from these.
constexpr char kWidthFields[] = "n_heads and value_dimensions";

void ReadFeatureMap(ConfigReader& config, EncoderConfig& result) {
  const std::string map = config.String("feature_map");
  if (map == "favor") {
    result.favor_features = config.Int("favor_n_dims", 2, kMaxKeyDim);
    result.favor_temperature = static_cast<float>(config.Number(
        "favor_softmax_temp", 0, 1e6,
        /*fallback=*/1 / std::sqrt(static_cast<double>(result.key_dim))));
    if (result.favor_features % 2 != 0) {
      config.Refuse("favor_n_dims", absl::StrCat("is ", result.favor_features,
                                                 ", which is odd"));
    }
  } else if (map != "elu") {
    config.Refuse(
        "feature_map",
        absl::StrCat("is ", Quoted(map), "; supported are 'elu' and 'favor'"));
  }
}

EncoderConfig ReadEncoderConfig(ConfigReader& config) {
  EncoderConfig result;
  result.vocab_size = config.Int("vocab_size", 1, kMaxVocab);
  result.layers = config.Int("n_layers", 1, kMaxLayers);
  result.heads = config.Int("n_heads", 1, 4096);
  result.key_dim = config.Int("query_dimensions", 1, kMaxKeyDim);
  result.value_dim = config.Int("value_dimensions", 1, 4096);
  result.ffn_width = config.Int("feed_forward_dimensions", 1, kMaxWidth);
  result.attention_eps = static_cast<float>(
      config.Number("attention_eps", 0, 1, /*fallback=*/1e-6));
  result.norm_eps = static_cast<float>(
      config.Number("layer_norm_eps", 0, 1, /*fallback=*/1e-5));
  result.final_norm = config.Bool("final_normalization", /*fallback=*/true);

  const std::string activation = config.String("activation");
  if (activation == "gelu") {
    result.activation = Activation::kGelu;
  } else if (activation != "relu") {
    config.Refuse("activation",
                  absl::StrCat("is ", Quoted(activation),
                               "; supported are 'relu' and 'gelu'"));
  }
  const std::string attention = config.String("attention_type");
  if (attention != "causal-linear") {
    config.Refuse("attention_type",
                  absl::StrCat("is ", Quoted(attention),
                               "; supported is 'causal-linear'"));
  }
  ReadFeatureMap(config, result);
  return result;
}

LinearRef Biased(const std::string& base, const std::string& fields) {
  return {.weight = {absl::StrCat(base, ".weight"), fields},
          .bias = {absl::StrCat(base, ".bias"), fields}};
}

NormDescription LayerNorm(const std::string& base, float eps) {
  return {.kind = NormKind::kLayer,
          .eps = eps,
          .weight = {absl::StrCat(base, ".weight"), kWidthFields},
          .bias = {absl::StrCat(base, ".bias"), kWidthFields}};
}

LinearAttentionDescription EncoderAttention(const EncoderConfig& config,
                                            const std::string& layer) {
  const auto projection = [&layer](std::string_view name,
                                   const std::string& fields) {
    return Biased(
        absl::StrCat(layer, "attention.", ToAbsl(name), "_projection"), fields);
  };
  const std::string key_fields =
      "n_heads, query_dimensions and value_dimensions";
  LinearAttentionDescription d;
  d.heads = config.heads;
  d.kv_heads = config.heads;
  d.key_dim = config.key_dim;
  d.value_dim = config.value_dim;
  d.q = projection("query", key_fields);
  d.k = projection("key", key_fields);
  d.v = projection("value", kWidthFields);
  d.o = projection("out", kWidthFields);
  d.feature_map = FeatureMap::kEluPlusOne;
  if (config.favor_features > 0) {
    // One map for queries and keys, which the encoder stores as [d, n / 2].
    d.feature_map = FeatureMap::kFavor;
    d.q_layers.layer1.weight = {
        layer + "attention.inner_attention.feature_map.omega",
        "query_dimensions and favor_n_dims"};
    d.q_layers.layer1.transposed = true;
    d.q_layers.random_features = config.favor_features;
    d.q_layers.temperature = config.favor_temperature;
    d.k_layers = d.q_layers;
  }
  d.normalize = true;
  d.epsilon = config.attention_eps;
  return d;
}

PlainFfnDescription EncoderFfn(const EncoderConfig& config,
                               const std::string& layer) {
  const std::string fields =
      "n_heads, value_dimensions and feed_forward_dimensions";
  return {.width = config.ffn_width,
          .activation = config.activation,
          .up = Biased(absl::StrCat(layer, "linear1"), fields),
          .down = Biased(absl::StrCat(layer, "linear2"), fields)};
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeFastTransformers(ConfigReader& config,
                                                          const Checkpoint&) {
  const EncoderConfig encoder = ReadEncoderConfig(config);
  RETURN_IF_ERROR(config.status());

  ModelDescription model;
  model.vocab_size = encoder.vocab_size;
  model.d_model = encoder.d_model();
  const std::string table_fields = "vocab_size, n_heads and value_dimensions";
  model.embedding = {"embedding.weight", table_fields};
  model.head = Biased("predictor", table_fields);
  if (encoder.final_norm) {
    model.final_norm = LayerNorm("transformer.norm", encoder.norm_eps);
  }
  for (int64_t i = 0; i < encoder.layers; ++i) {
    const std::string layer = absl::StrCat("transformer.layers.", i, ".");
    model.layers.push_back(
        {{NormPlacement::kAfter,
          LayerNorm(absl::StrCat(layer, "norm1"), encoder.norm_eps),
          EncoderAttention(encoder, layer)},
         {NormPlacement::kAfter,
          LayerNorm(absl::StrCat(layer, "norm2"), encoder.norm_eps),
          EncoderFfn(encoder, layer)}});
  }
  return model;
}

}  // namespace reprise
