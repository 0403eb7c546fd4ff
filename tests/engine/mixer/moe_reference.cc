// A mixture of experts as plain loops in double.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "engine/model/moe_description.h"
#include "tests/engine/mixer/reference_math.h"
#include "tests/engine/mixer/reference_steps.h"

namespace reprise {
namespace {

Doubles ExpertOf(const ExpertDescription& d, const ReferenceMixer& m,
                 const Doubles& x) {
  const Doubles gate = Apply(d.gate, x, m.tensors, m.rounding);
  Doubles up = Apply(d.up, x, m.tensors, m.rounding);
  for (size_t i = 0; i < up.size(); ++i) up[i] *= gate[i] * Sigmoid(gate[i]);
  return Apply(d.down, up, m.tensors, m.rounding);
}

}  // namespace

Doubles StepOf(const MoeFfnDescription& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState&) {
  // The router is in f32 whatever the model's type.
  Doubles p = Apply(d.router, x, m.tensors, ReferenceRounding::kNone);
  double sum = 0;
  for (double& v : p) sum += v = std::exp(v);
  for (double& v : p) v /= sum;
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return p[a] > p[b]; });
  order.resize(static_cast<size_t>(d.per_row));
  double chosen = 0;
  for (const size_t e : order) chosen += p[e];
  Doubles y(x.size());
  for (const size_t e : order) {
    const Doubles out = ExpertOf(d.experts[e], m, x);
    const double share = d.sum_to_one ? p[e] / chosen : p[e];
    for (size_t i = 0; i < y.size(); ++i) y[i] += share * out[i];
  }
  if (d.shared_width > 0) {
    const double gate = Sigmoid(
        Apply(d.shared_gate, x, m.tensors, ReferenceRounding::kNone)[0]);
    const Doubles out = ExpertOf(d.shared, m, x);
    for (size_t i = 0; i < y.size(); ++i) y[i] += gate * out[i];
  }
  return y;
}

}  // namespace reprise
