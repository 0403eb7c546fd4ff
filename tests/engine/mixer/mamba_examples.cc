#include <limits>
#include <utility>

#include "engine/model/mamba_descriptions.h"
#include "tests/engine/mixer/example_builder.h"

namespace reprise {
namespace {

MixerExample MambaExample(std::string name, int64_t inner, int64_t state_size,
                          int64_t taps) {
  ExampleBuilder builder(std::move(name), 8);
  MambaDescription d;
  d.inner = inner;
  d.state_size = state_size;
  d.dt_rank = 5;
  d.in = builder.Linear("in", 2 * inner, kModelWidth, false);
  d.conv = builder.Conv("conv", inner, taps, true);
  d.x_proj = builder.Linear("x_proj", d.dt_rank + 2 * state_size, inner, false);
  d.dt_proj = builder.Linear("dt_proj", inner, d.dt_rank, true);
  d.a_log = builder.Tensor("a_log", {inner, state_size}, 0, 1);
  d.d = builder.Tensor("d", {inner}, 1, 0.3F);
  d.out = builder.Linear("out", kModelWidth, inner, false);
  MixerExample example = builder.Finish(d);
  example.state_behind_rounding = true;
  return example;
}

struct Mamba2Shape {
  int64_t heads;
  int64_t head_dim;
  int64_t state_size;
  int64_t groups;
  int64_t norm_groups;
};

MixerExample Mamba2Example(std::string name, const Mamba2Shape& shape,
                           float dt_max) {
  ExampleBuilder builder(std::move(name), 9);
  Mamba2Description d;
  d.heads = shape.heads;
  d.head_dim = shape.head_dim;
  d.state_size = shape.state_size;
  d.groups = shape.groups;
  const int64_t convolved = d.inner() + 2 * d.groups * d.state_size;
  d.in =
      builder.Linear("in", d.inner() + convolved + d.heads, kModelWidth, false);
  d.conv = builder.Conv("conv", convolved, 4, true);
  d.a_log = builder.Tensor("a_log", {d.heads}, 0, 1);
  d.d = builder.Tensor("d", {d.heads}, 1, 0.3F);
  d.dt_bias = builder.Tensor("dt_bias", {d.heads}, 0, 1);
  d.dt_min = 0.01F;
  d.dt_max = dt_max;
  d.norm_weight = builder.Tensor("norm", {d.inner()}, 1, 0.3F);
  d.norm_eps = 1e-5F;
  d.norm_groups = shape.norm_groups;
  d.out = builder.Linear("out", kModelWidth, d.inner(), false);
  return builder.Finish(d);
}

}  // namespace

void AddMambaExamples(std::vector<MixerExample>& examples) {
  examples.push_back(MambaExample("Mamba", 96, 16, 4));
  examples.push_back(MambaExample("MambaOdd", 75, 7, 3));
  examples.push_back(Mamba2Example("Mamba2",
                                   {.heads = 4,
                                    .head_dim = 16,
                                    .state_size = 24,
                                    .groups = 1,
                                    .norm_groups = 1},
                                   std::numeric_limits<float>::infinity()));
  examples.push_back(Mamba2Example("Mamba2Groups",
                                   {.heads = 6,
                                    .head_dim = 10,
                                    .state_size = 13,
                                    .groups = 2,
                                    .norm_groups = 2},
                                   /*dt_max=*/1.5F));
}

}  // namespace reprise
