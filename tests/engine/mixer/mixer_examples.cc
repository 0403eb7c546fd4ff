#include "tests/engine/mixer/mixer_examples.h"

#include <cmath>
#include <utility>

#include "engine/model/ffn_descriptions.h"
#include "engine/model/linear_attention_description.h"
#include "tests/engine/mixer/example_builder.h"

namespace reprise {
namespace {

struct AttentionShape {
  int64_t heads;
  int64_t kv_heads;
  int64_t key_dim;
  int64_t value_dim;
};

LinearAttentionDescription Attention(ExampleBuilder& builder,
                                     AttentionShape shape, FeatureMap map,
                                     bool bias) {
  LinearAttentionDescription d;
  d.heads = shape.heads;
  d.kv_heads = shape.kv_heads;
  d.key_dim = shape.key_dim;
  d.value_dim = shape.value_dim;
  d.q = builder.Linear("q", d.heads * d.key_dim, kModelWidth, bias);
  d.k = builder.Linear("k", d.kv_heads * d.key_dim, kModelWidth, bias);
  d.v = builder.Linear("v", d.kv_heads * d.value_dim, kModelWidth, bias);
  d.o = builder.Linear("o", kModelWidth, d.heads * d.value_dim, bias);
  d.feature_map = map;
  const auto layer = [&](const std::string& name, bool layer_bias) {
    return builder.Linear(name, d.key_dim, d.key_dim, layer_bias);
  };
  if (map == FeatureMap::kElementwiseProduct) {
    d.q_layers = {layer("q1", true), layer("q2", true)};
    d.k_layers = {layer("k1", true), layer("k2", true)};
  } else if (map == FeatureMap::kHedgehog || map == FeatureMap::kT2r) {
    const bool layer_bias = map == FeatureMap::kHedgehog;
    d.q_layers.layer1 = layer("q1", layer_bias);
    d.k_layers.layer1 = layer("k1", layer_bias);
  }
  if (map == FeatureMap::kFavor) {
    d.q_layers.layer1 = builder.Linear("omega", 14, d.key_dim, false);
    d.q_layers.random_features = 28;
    d.q_layers.temperature = 0.3F;
    d.k_layers = d.q_layers;
  }
  d.scale =
      1 / std::sqrt(static_cast<float>(FeatureDim(map, d.key_dim, d.q_layers)));
  d.epsilon = 1e-10F;
  return d;
}

void AddOutputNorm(ExampleBuilder& builder, LinearAttentionDescription& d) {
  d.output_norm =
      NormDescription{.kind = NormKind::kRms,
                      .eps = 1e-5F,
                      .weight = builder.Tensor("norm", {d.value_dim}, 1, 0.3F),
                      .bias = {}};
}

MixerExample GatedFfnExample() {
  ExampleBuilder builder("GatedFfn", 1);
  GatedFfnDescription d;
  d.width = 96;
  d.gate = builder.Linear("gate", d.width, kModelWidth, false);
  d.up = builder.Linear("up", d.width, kModelWidth, false);
  d.down = builder.Linear("down", kModelWidth, d.width, false);
  return builder.Finish(d);
}

MixerExample PlainFfnExample(std::string name, Activation activation) {
  ExampleBuilder builder(std::move(name), 2);
  PlainFfnDescription d;
  d.width = 96;
  d.activation = activation;
  d.up = builder.Linear("up", d.width, kModelWidth, true);
  d.down = builder.Linear("down", kModelWidth, d.width, true);
  return builder.Finish(d);
}

// Maps whose features are positive, so that the quotient is well-conditioned.
MixerExample Normalized(std::string name, FeatureMap map,
                        AttentionShape shape) {
  ExampleBuilder builder(std::move(name), 3);
  LinearAttentionDescription d =
      Attention(builder, shape, map, /*bias=*/map == FeatureMap::kEluPlusOne);
  d.normalize = true;
  return builder.Finish(d);
}

MixerExample WithOutputNorm(std::string name, FeatureMap map,
                            AttentionShape shape) {
  ExampleBuilder builder(std::move(name), 4);
  LinearAttentionDescription d = Attention(builder, shape, map, /*bias=*/false);
  d.q_sum_to_one = d.k_sum_to_one = map == FeatureMap::kRelu;
  AddOutputNorm(builder, d);
  return builder.Finish(d);
}

}  // namespace

std::vector<MixerExample> MixerExamples() {
  std::vector<MixerExample> examples;
  examples.push_back(GatedFfnExample());
  examples.push_back(PlainFfnExample("PlainFfnRelu", Activation::kRelu));
  examples.push_back(PlainFfnExample("PlainFfnGelu", Activation::kGelu));
  // Odd sizes, grouped heads, and value dimensions unlike key dimensions.
  examples.push_back(Normalized("LinearAttentionElu", FeatureMap::kEluPlusOne,
                                {4, 2, 12, 20}));
  examples.push_back(Normalized("LinearAttentionHedgehog",
                                FeatureMap::kHedgehog, {3, 3, 16, 16}));
  examples.push_back(
      WithOutputNorm("LinearAttentionRelu", FeatureMap::kRelu, {2, 2, 32, 64}));
  examples.push_back(
      Normalized("LinearAttentionFavor", FeatureMap::kFavor, {2, 2, 12, 20}));
  examples.push_back(WithOutputNorm("LinearAttentionIdentity",
                                    FeatureMap::kIdentity, {6, 3, 7, 9}));
  examples.push_back(WithOutputNorm("LinearAttentionProduct",
                                    FeatureMap::kElementwiseProduct,
                                    {2, 1, 24, 24}));
  examples.push_back(
      WithOutputNorm("LinearAttentionT2r", FeatureMap::kT2r, {4, 4, 16, 16}));
  examples.push_back(
      WithOutputNorm("LinearAttentionDpfp", FeatureMap::kDpfp, {2, 2, 8, 16}));
  AddAttentionExamples(examples);
  AddDecayExamples(examples);
  AddDeltaExamples(examples);
  AddMambaExamples(examples);
  AddMoeExamples(examples);
  AddRwkv7Examples(examples);
  AddRwkvExamples(examples);
  return examples;
}

}  // namespace reprise
