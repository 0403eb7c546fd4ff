// Examples of the delta-rule mixers.
#include <cmath>
#include <utility>

#include "engine/model/delta_description.h"
#include "tests/engine/mixer/example_builder.h"

namespace reprise {
namespace {

struct DeltaShape {
  int64_t heads;
  int64_t key_heads;
  int64_t key_dim;
  int64_t value_dim;
};

DeltaNetDescription DeltaNet(ExampleBuilder& builder, const DeltaShape& shape) {
  DeltaNetDescription d;
  d.heads = shape.heads;
  d.key_heads = shape.key_heads;
  d.key_dim = shape.key_dim;
  d.value_dim = shape.value_dim;
  const int64_t key_width = d.key_heads * d.key_dim;
  const int64_t value_width = d.heads * d.value_dim;
  d.q = builder.Linear("q", key_width, kModelWidth, false);
  d.k = builder.Linear("k", key_width, kModelWidth, false);
  d.v = builder.Linear("v", value_width, kModelWidth, false);
  d.o = builder.Linear("o", kModelWidth, value_width, false);
  d.scale = 1 / std::sqrt(static_cast<float>(d.key_dim));
  d.output_norm = {.kind = NormKind::kRms,
                   .eps = 1e-5F,
                   .weight = builder.Tensor("norm", {d.value_dim}, 1, 0.3F),
                   .bias = {}};
  return d;
}

void AddConvolution(ExampleBuilder& builder, const std::string& field,
                    int64_t channels, bool silu, DeltaNetDescription& d) {
  constexpr int64_t kTaps = 4;
  d.convolutions.push_back(
      {.field = field,
       .conv = {.channels = channels,
                .taps = kTaps,
                .weight = builder.Tensor(field, {channels, 1, kTaps}, 0, 0.5F),
                .bias = {},
                .silu = silu}});
}

void AddBeta(ExampleBuilder& builder, DeltaNetDescription& d) {
  d.beta = builder.Linear("beta", d.heads, kModelWidth, false);
}

void AddGate(ExampleBuilder& builder, DeltaNetDescription& d) {
  d.gate = builder.Linear("gate", d.heads * d.value_dim, kModelWidth, false);
}

// The defaults of fla: three convolutions with silu, L2 norm, beta.
MixerExample DeltaNetExample() {
  ExampleBuilder builder("DeltaNet", 20);
  DeltaNetDescription d = DeltaNet(builder, {2, 2, 32, 32});
  AddConvolution(builder, "conv_q", 64, /*silu=*/true, d);
  AddConvolution(builder, "conv_k", 64, /*silu=*/true, d);
  AddConvolution(builder, "conv_v", 64, /*silu=*/true, d);
  AddBeta(builder, d);
  return builder.Finish(d);
}

// No convolution, keys that sum to one, no beta, a gate, odd sizes.
MixerExample DeltaNetSumExample() {
  ExampleBuilder builder("DeltaNetSum", 21);
  DeltaNetDescription d = DeltaNet(builder, {3, 3, 7, 9});
  d.qk_activation = HeadActivation::kEluPlusOne;
  d.v_activation = HeadActivation::kSilu;
  d.qk_norm = HeadNorm::kSumToOne;
  AddGate(builder, d);
  return builder.Finish(d);
}

// Grouped value heads, one convolution over all, decay, negative eigenvalues.
MixerExample GatedDeltaNetExample() {
  ExampleBuilder builder("GatedDeltaNet", 22);
  DeltaNetDescription d = DeltaNet(builder, {6, 2, 12, 20});
  AddConvolution(builder, "conv", 2 * 24 + 120, /*silu=*/true, d);
  AddBeta(builder, d);
  d.beta_scale = 2;
  d.decay = builder.Linear("decay", d.heads, kModelWidth, false);
  d.a_log = builder.Tensor("a_log", {d.heads}, 0, 1);
  d.dt_bias = builder.Tensor("dt_bias", {d.heads}, -1, 1);
  AddGate(builder, d);
  return builder.Finish(d);
}

}  // namespace

void AddDeltaExamples(std::vector<MixerExample>& examples) {
  examples.push_back(DeltaNetExample());
  examples.push_back(DeltaNetSumExample());
  examples.push_back(GatedDeltaNetExample());
}

}  // namespace reprise
