// Examples of RWKV-7's mixers.
#include <string>
#include <utility>

#include "engine/model/rwkv7_description.h"
#include "tests/engine/mixer/example_builder.h"

namespace reprise {
namespace {

ShapedRef Numbers(ExampleBuilder& builder, const std::string& name,
                  std::vector<int64_t> shape, float mean, float deviation) {
  return {builder.Tensor(name, shape, mean, deviation), shape};
}

LoraDescription Lora(ExampleBuilder& builder, const std::string& name,
                     int64_t rank, bool bias) {
  return {.rank = rank,
          .down = builder.Linear(name + "1", rank, kModelWidth, false),
          .up = builder.Linear(name + "2", kModelWidth, rank, bias)};
}

// A time mix whose tensors' names begin with `prefix`; `first` is the layer
// that keeps its values for the others.
Rwkv7Description TimeMix(ExampleBuilder& builder, const std::string& prefix,
                         int64_t heads, bool first) {
  const auto square = [&](const std::string& name) {
    return builder.Linear(prefix + name, kModelWidth, kModelWidth, false);
  };
  const auto numbers = [&](const std::string& name, float mean,
                           float deviation) {
    return Numbers(builder, prefix + name, {kModelWidth}, mean, deviation);
  };
  Rwkv7Description d;
  d.heads = heads;
  d.head_dim = kModelWidth / heads;
  if (first) {
    d.mixes = {Numbers(builder, prefix + "x_x", {kRwkv7Mixes, kModelWidth},
                       0.5F, 0.3F)};
  } else {
    for (const char* name : {"x_r", "x_w", "x_k", "x_v", "x_a", "x_g"}) {
      d.mixes.push_back(
          Numbers(builder, prefix + name, {1, 1, kModelWidth}, 0.5F, 0.3F));
    }
    d.first_value = Lora(builder, prefix + "v_", 5, true);
  }
  d.r = square("r");
  d.k = square("k");
  d.v = square("v");
  d.o = square("o");
  d.w = Lora(builder, prefix + "w_", 8, true);
  d.a = Lora(builder, prefix + "a_", 12, true);
  d.g = Lora(builder, prefix + "g_", 16, false);
  d.k_k = numbers("k_k", 1, 0.3F);
  d.k_a = numbers("k_a", 1, 0.3F);
  d.r_k = numbers("r_k", 0, 0.3F);
  d.key_epsilon = 1e-6F;
  d.output_epsilon = 64e-5F;
  d.output_weight =
      builder.Tensor(prefix + "ln.weight", {kModelWidth}, 1, 0.3F);
  d.output_bias = builder.Tensor(prefix + "ln.bias", {kModelWidth}, 0, 0.3F);
  return d;
}

MixerExample FirstLayer() {
  ExampleBuilder builder("Rwkv7First", 30);
  const Rwkv7Description d = TimeMix(builder, "", /*heads=*/2, /*first=*/true);
  MixerExample example = builder.Finish(d);
  example.state_behind_rounding = true;
  return example;
}

MixerExample LaterLayer() {
  ExampleBuilder builder("Rwkv7Later", 31);
  const Rwkv7Description before =
      TimeMix(builder, "before.", /*heads=*/1, /*first=*/true);
  const Rwkv7Description d = TimeMix(builder, "", /*heads=*/4, /*first=*/false);
  MixerExample example = builder.Finish(d);
  example.before = before;
  example.state_behind_rounding = true;
  return example;
}

MixerExample Rwkv7ChannelMix() {
  ExampleBuilder builder("Rwkv7Ffn", 32);
  Rwkv7FfnDescription d;
  d.width = 96;
  d.mix = Numbers(builder, "x_k", {1, 1, kModelWidth}, 0.5F, 0.3F);
  d.key = builder.Linear("key", d.width, kModelWidth, false);
  d.value = builder.Linear("value", kModelWidth, d.width, false);
  return builder.Finish(d);
}

}  // namespace

void AddRwkv7Examples(std::vector<MixerExample>& examples) {
  examples.push_back(FirstLayer());
  examples.push_back(LaterLayer());
  examples.push_back(Rwkv7ChannelMix());
}

}  // namespace reprise
