#include <utility>

#include "engine/model/mixer_description.h"
#include "engine/model/rwkv7_description.h"
#include "engine/model/rwkv_descriptions.h"
#include "tests/engine/mixer/example_builder.h"

namespace reprise {
namespace {

// Shares between 0 and 1, most of them.
RwkvMix Mix(ExampleBuilder& builder, const std::string& name, bool of_now) {
  RwkvMix mix;
  mix.share.tensor = builder.Tensor(name, {kModelWidth}, 0.5F, 0.3F);
  mix.share.shape = {kModelWidth};
  mix.of_now = of_now;
  return mix;
}

ShapedRef Numbers(ExampleBuilder& builder, const std::string& name,
                  const std::vector<int64_t>& shape, float mean) {
  return {builder.Tensor(name, shape, mean, 0.7F), shape};
}

// All but mixes and decays.
RwkvTimeMixDescription Heads(ExampleBuilder& builder, int64_t heads,
                             int64_t key_dim, int64_t value_dim, bool gated) {
  RwkvTimeMixDescription d;
  d.heads = heads;
  d.key_dim = key_dim;
  d.value_dim = value_dim;
  const int64_t values = heads * value_dim;
  d.r = builder.Linear("r", heads * key_dim, kModelWidth, false);
  d.k = builder.Linear("k", heads * key_dim, kModelWidth, false);
  d.v = builder.Linear("v", values, kModelWidth, false);
  if (gated) d.gate = builder.Linear("gate", values, kModelWidth, false);
  d.o = builder.Linear("o", kModelWidth, values, false);
  d.output_epsilon = 1e-3F;
  d.output_weight = builder.Tensor("norm", {values}, 1, 0.3F);
  d.output_bias = builder.Tensor("norm_bias", {values}, 0, 0.3F);
  return d;
}

MixerExample Finish(ExampleBuilder& builder, MixerDescription d) {
  MixerExample example = builder.Finish(std::move(d));
  example.state_behind_rounding = true;
  return example;
}

MixerExample Rwkv5(std::string name, bool per_head) {
  ExampleBuilder builder(std::move(name), 11);
  RwkvTimeMixDescription d = Heads(builder, 3, 12, 12, /*gated=*/!per_head);
  for (const RwkvPart part : {kRwkvR, kRwkvK, kRwkvV}) {
    d.mixes[part] = Mix(builder, "mix" + std::to_string(part), true);
  }
  if (!per_head) d.mixes[kRwkvG] = Mix(builder, "mix_g", true);
  const std::vector<int64_t> shape =
      per_head ? std::vector<int64_t>{3} : std::vector<int64_t>{3, 12};
  d.decay = Numbers(builder, "decay", shape, -1);
  d.bonus = Numbers(builder, "bonus", shape, 0);
  d.bonus_exponential = per_head;
  return Finish(builder, d);
}

MixerExample Rwkv6(std::string name, bool by_output) {
  ExampleBuilder builder(std::move(name), 12);
  RwkvTimeMixDescription d = Heads(builder, 2, 10, 18, /*gated=*/true);
  const int64_t rank = 6;
  const int64_t all = kRwkvParts * rank;
  for (size_t part = 0; part < kRwkvParts; ++part) {
    d.mixes[part] = Mix(builder, "mix" + std::to_string(part), false);
  }
  RwkvDynamicMixDescription& dynamic = d.dynamic_mix.emplace();
  dynamic.mix = Mix(builder, "mix_x", false);
  dynamic.rank = rank;
  dynamic.down = builder.Linear("mix_down", all, kModelWidth, false);
  dynamic.by_output = by_output;
  const std::vector<int64_t> shape =
      by_output ? std::vector<int64_t>{kModelWidth, all}
                : std::vector<int64_t>{kRwkvParts, rank, kModelWidth};
  dynamic.up = builder.Tensor("mix_up", shape, 0, 0.2F);
  if (by_output) {
    dynamic.places = {0, 1, 2, 3, 4};
  } else {
    dynamic.places = {3, 0, 1, 2, 4};
  }
  LoraDescription& lora = d.decay_lora.emplace();
  lora.rank = 7;
  lora.down = builder.Linear("decay_down", lora.rank, kModelWidth, false);
  lora.up = builder.Linear("decay_up", 20, lora.rank, true);
  d.bonus = Numbers(builder, "bonus", {2, 10}, 0);
  return Finish(builder, d);
}

MixerExample Rwkv4() {
  ExampleBuilder builder("Rwkv4TimeMix", 13);
  Rwkv4TimeMixDescription d;
  d.width = 70;
  d.mix_k = Mix(builder, "mix_k", true);
  d.mix_v = Mix(builder, "mix_v", true);
  d.mix_r = Mix(builder, "mix_r", true);
  d.k = builder.Linear("k", d.width, kModelWidth, false);
  d.v = builder.Linear("v", d.width, kModelWidth, false);
  d.r = builder.Linear("r", d.width, kModelWidth, false);
  d.o = builder.Linear("o", kModelWidth, d.width, false);
  d.decay = builder.Tensor("decay", {d.width}, -2, 2);
  d.bonus = builder.Tensor("bonus", {d.width}, 0, 1);
  return Finish(builder, d);
}

MixerExample RwkvChannelMix() {
  ExampleBuilder builder("RwkvChannelMix", 14);
  RwkvChannelMixDescription d;
  d.width = 90;
  d.mix_k = Mix(builder, "mix_k", false);
  d.mix_r = Mix(builder, "mix_r", true);
  d.key = builder.Linear("key", d.width, kModelWidth, false);
  d.value = builder.Linear("value", kModelWidth, d.width, false);
  d.receptance = builder.Linear("receptance", kModelWidth, kModelWidth, false);
  return builder.Finish(d);
}

}  // namespace

void AddRwkvExamples(std::vector<MixerExample>& examples) {
  examples.push_back(Rwkv4());
  examples.push_back(Rwkv5("Rwkv5TimeMix", /*per_head=*/false));
  examples.push_back(Rwkv5("Rwkv5TimeMixPerHead", /*per_head=*/true));
  examples.push_back(Rwkv6("Rwkv6TimeMix", /*by_output=*/true));
  examples.push_back(Rwkv6("Rwkv6TimeMixOriginal", /*by_output=*/false));
  examples.push_back(RwkvChannelMix());
}

}  // namespace reprise
