// Examples of softmax attention.
#include <cmath>
#include <utility>

#include "engine/model/softmax_attention_description.h"
#include "tests/engine/mixer/example_builder.h"

namespace reprise {
namespace {

struct SoftmaxHeads {
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
};

SoftmaxAttentionDescription Attention(ExampleBuilder& builder,
                                      SoftmaxHeads shape, bool gated,
                                      bool bias) {
  SoftmaxAttentionDescription d;
  d.heads = shape.heads;
  d.kv_heads = shape.kv_heads;
  d.head_dim = shape.head_dim;
  d.output_gate = gated;
  const int64_t width = d.heads * d.head_dim;
  const int64_t kv_width = d.kv_heads * d.head_dim;
  d.q = builder.Linear("q", gated ? 2 * width : width, kModelWidth, bias);
  d.k = builder.Linear("k", kv_width, kModelWidth, bias);
  d.v = builder.Linear("v", kv_width, kModelWidth, bias);
  d.o = builder.Linear("o", kModelWidth, width, /*bias=*/false);
  d.rotary_dim = d.head_dim;
  d.scale = 1 / std::sqrt(static_cast<float>(d.head_dim));
  return d;
}

void AddNorms(ExampleBuilder& builder, SoftmaxAttentionDescription& d) {
  const auto norm = [&](const std::string& name) {
    return NormDescription{
        .kind = NormKind::kRms,
        .eps = 1e-5F,
        .weight = builder.Tensor(name, {d.head_dim}, 1, 0.3F),
        .bias = {}};
  };
  d.q_norm = norm("q_norm");
  d.k_norm = norm("k_norm");
}

// Everything rotates, all tokens are seen.
MixerExample PlainExample() {
  ExampleBuilder builder("SoftmaxAttention", 40);
  return builder.Finish(
      Attention(builder, {4, 2, 16}, /*gated=*/false, /*bias=*/false));
}

// More heads to one key head than the kernel takes at once.
MixerExample ManyHeadsExample() {
  ExampleBuilder builder("SoftmaxAttentionManyHeads", 41);
  return builder.Finish(
      Attention(builder, {11, 1, 6}, /*gated=*/false, /*bias=*/true));
}

// A window of less than a tile; norms; a part of each head rotates.
MixerExample WindowExample() {
  ExampleBuilder builder("SoftmaxAttentionWindow", 42);
  SoftmaxAttentionDescription d =
      Attention(builder, {3, 1, 20}, /*gated=*/false, /*bias=*/true);
  AddNorms(builder, d);
  d.window = 24;
  d.rotary_dim = 12;
  d.rotary_base = 5e5;
  return builder.Finish(d);
}

// Pairs that keep their speed, that are slowed down, and some in between.
MixerExample StretchedExample() {
  ExampleBuilder builder("SoftmaxAttentionStretched", 45);
  SoftmaxAttentionDescription d =
      Attention(builder, {2, 1, 16}, /*gated=*/false, /*bias=*/false);
  d.rotary_base = 500;
  d.rotary_scaling = {.kind = RotaryScalingKind::kLlama3,
                      .factor = 8,
                      .low_frequency_factor = 1,
                      .high_frequency_factor = 4,
                      .original_positions = 256};
  return builder.Finish(d);
}

// As in Qwen3-Next.
MixerExample GatedExample() {
  ExampleBuilder builder("SoftmaxAttentionGated", 43);
  SoftmaxAttentionDescription d =
      Attention(builder, {4, 2, 32}, /*gated=*/true, /*bias=*/false);
  AddNorms(builder, d);
  d.rotary_dim = 8;
  return builder.Finish(d);
}

// No positions, another scale, a window that is no multiple of anything.
MixerExample NoPositionsExample() {
  ExampleBuilder builder("SoftmaxAttentionNoPositions", 44);
  SoftmaxAttentionDescription d =
      Attention(builder, {2, 2, 24}, /*gated=*/false, /*bias=*/false);
  d.rotary_dim = 0;
  d.scale = 0.3F;
  d.window = 71;
  return builder.Finish(d);
}

}  // namespace

void AddAttentionExamples(std::vector<MixerExample>& examples) {
  examples.push_back(PlainExample());
  examples.push_back(ManyHeadsExample());
  examples.push_back(WindowExample());
  examples.push_back(GatedExample());
  examples.push_back(NoPositionsExample());
  examples.push_back(StretchedExample());
}

}  // namespace reprise
