#include <cmath>
#include <utility>

#include "engine/model/decay_descriptions.h"
#include "tests/engine/mixer/example_builder.h"

namespace reprise {
namespace {

struct DecayHeads {
  int64_t heads;
  int64_t kv_heads;
  int64_t key_dim;
  int64_t value_dim;
};

DecayAttentionDescription Attention(ExampleBuilder& builder, DecayHeads shape,
                                    bool gated) {
  DecayAttentionDescription d;
  d.heads = shape.heads;
  d.kv_heads = shape.kv_heads;
  d.key_dim = shape.key_dim;
  d.value_dim = shape.value_dim;
  const int64_t value_width = d.heads * d.value_dim;
  d.q = builder.Linear("q", d.heads * d.key_dim, kModelWidth, false);
  d.k = builder.Linear("k", d.kv_heads * d.key_dim, kModelWidth, false);
  d.v = builder.Linear("v", d.kv_heads * d.value_dim, kModelWidth, false);
  if (gated) d.gate = builder.Linear("gate", value_width, kModelWidth, false);
  d.o = builder.Linear("o", kModelWidth, value_width, false);
  d.scale = 1 / std::sqrt(static_cast<float>(d.key_dim));
  d.output_norm.eps = 1e-5F;
  d.output_norm.weight = builder.Tensor("norm", {d.value_dim}, 1, 0.3F);
  return d;
}

MixerExample RetentionExample(std::string name, DecayHeads shape, bool gated,
                              std::optional<Activation> activation) {
  ExampleBuilder builder(std::move(name), 5);
  RetentionDescription d;
  d.attention = Attention(builder, shape, gated);
  d.attention.activation = activation;
  d.rotary_base = 10000;
  for (int64_t head = 0; head < shape.heads; ++head) {
    d.decay.push_back(1 - std::exp2(-2.0F - 2 * static_cast<float>(head)));
  }
  return builder.Finish(d);
}

MixerExample GlaExample(std::string name, DecayHeads shape, bool convs) {
  ExampleBuilder builder(std::move(name), 6);
  GatedLinearAttentionDescription d;
  const int64_t keys = shape.kv_heads * shape.key_dim;
  d.attention = Attention(builder, shape, /*gated=*/true);
  if (convs) {
    const int64_t values = shape.kv_heads * shape.value_dim;
    d.convs.push_back(
        builder.Conv("conv_q", shape.heads * shape.key_dim, 4, false));
    d.convs.push_back(builder.Conv("conv_k", keys, 4, false));
    d.convs.push_back(builder.Conv("conv_v", values, 4, false));
    d.attention.activation = Activation::kRelu;
    d.min_log_decay = -0.12F;
  }
  d.decay_rank = 16;
  d.decay_normalizer = convs ? 16 : 2;  // the latter forgets fast
  d.decay_down = builder.Linear("down", d.decay_rank, kModelWidth, false);
  d.decay_up = builder.Linear("up", keys, d.decay_rank, true);
  MixerExample example = builder.Finish(d);
  example.state_behind_rounding = true;
  return example;
}

}  // namespace

void AddDecayExamples(std::vector<MixerExample>& examples) {
  examples.push_back(
      RetentionExample("Retention", {2, 2, 32, 64}, true, std::nullopt));
  examples.push_back(RetentionExample("RetentionGroupedSilu", {4, 2, 12, 20},
                                      false, Activation::kSilu));
  examples.push_back(GlaExample("GatedLinearAttention", {3, 3, 18, 24}, false));
  examples.push_back(
      GlaExample("GatedLinearAttentionConvGrouped", {4, 2, 12, 20}, true));
}

}  // namespace reprise
