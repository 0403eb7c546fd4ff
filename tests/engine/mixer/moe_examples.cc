// Examples of mixtures of experts.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/model/moe_description.h"
#include "tests/engine/mixer/example_builder.h"

namespace reprise {
namespace {

ExpertDescription Expert(ExampleBuilder& builder, const std::string& name,
                         int64_t width) {
  return {.gate = builder.Linear(name + ".gate", width, kModelWidth, false),
          .up = builder.Linear(name + ".up", width, kModelWidth, false),
          .down = builder.Linear(name + ".down", kModelWidth, width, false)};
}

MoeFfnDescription Moe(ExampleBuilder& builder, int64_t experts,
                      int64_t per_row) {
  MoeFfnDescription d;
  d.width = 72;
  d.per_row = per_row;
  d.router = builder.Linear("router", experts, kModelWidth, false);
  for (int64_t i = 0; i < experts; ++i) {
    d.experts.push_back(Expert(builder, absl::StrCat("expert", i), d.width));
  }
  return d;
}

}  // namespace

void AddMoeExamples(std::vector<MixerExample>& examples) {
  ExampleBuilder plain("MoeFfn", 40);
  examples.push_back(plain.Finish(Moe(plain, /*experts=*/5, /*per_row=*/2)));

  ExampleBuilder shared("MoeFfnShared", 41);
  MoeFfnDescription d = Moe(shared, /*experts=*/8, /*per_row=*/3);
  d.sum_to_one = true;
  d.shared_width = 96;
  d.shared = Expert(shared, "shared", d.shared_width);
  d.shared_gate = shared.Linear("shared_gate", 1, kModelWidth, false);
  examples.push_back(shared.Finish(d));
}

}  // namespace reprise
