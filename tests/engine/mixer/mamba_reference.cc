#include <algorithm>
#include <cmath>

#include "engine/model/mamba_descriptions.h"
#include "tests/engine/mixer/reference_math.h"
#include "tests/engine/mixer/reference_steps.h"

namespace reprise {
namespace {

// The numbers [first, first + count) of x.
Doubles Slice(const Doubles& x, int64_t first, int64_t count) {
  return Doubles(x.begin() + first, x.begin() + first + count);
}

}  // namespace

Doubles StepOf(const MambaDescription& d, const ReferenceMixer& m,
               const Doubles& rows, ReferenceState& state) {
  const Doubles in = Apply(d.in, rows, m.tensors, m.rounding);
  const Doubles x =
      Convolved(d.conv, Slice(in, 0, d.inner), m.tensors, state["conv"]);
  // These two are of low rank, and f32 whatever the type.
  const Doubles p = Apply(d.x_proj, x, m.tensors, ReferenceRounding::kNone);
  const Doubles dt = Apply(d.dt_proj, Slice(p, 0, d.dt_rank), m.tensors,
                           ReferenceRounding::kNone);
  Doubles& h = state["recurrent"];
  h.resize(static_cast<size_t>(d.inner * d.state_size));
  Doubles y;
  for (int64_t c = 0; c < d.inner; ++c) {
    const auto channel = static_cast<size_t>(c);
    const double step = Softplus(dt[channel]);
    double sum = m.tensors.at(d.d.name)[channel] * x[channel];
    for (int64_t n = 0; n < d.state_size; ++n) {
      const auto i = static_cast<size_t>(c * d.state_size + n);
      const double a = -std::exp(m.tensors.at(d.a_log.name)[i]);
      const double b = p[static_cast<size_t>(d.dt_rank + n)];
      h[i] = std::exp(step * a) * h[i] + step * b * x[channel];
      sum += p[static_cast<size_t>(d.dt_rank + d.state_size + n)] * h[i];
    }
    y.push_back(sum * Silu(in[static_cast<size_t>(d.inner + c)]));
  }
  return Apply(d.out, y, m.tensors, m.rounding);
}

Doubles StepOf(const Mamba2Description& d, const ReferenceMixer& m,
               const Doubles& rows, ReferenceState& state) {
  const int64_t inner = d.inner();
  const int64_t shared = d.groups * d.state_size;
  const Doubles in = Apply(d.in, rows, m.tensors, m.rounding);
  const Doubles xbc = Convolved(d.conv, Slice(in, inner, inner + 2 * shared),
                                m.tensors, state["conv"]);
  Doubles& s = state["ssm"];
  s.resize(static_cast<size_t>(d.heads * d.state_size * d.head_dim));
  Doubles y(static_cast<size_t>(inner));
  for (int64_t head = 0; head < d.heads; ++head) {
    const auto h = static_cast<size_t>(head);
    const int64_t group = head / (d.heads / d.groups);
    const Doubles x = HeadOf(xbc, head, d.head_dim);
    const Doubles b = Slice(xbc, inner + group * d.state_size, d.state_size);
    const Doubles c =
        Slice(xbc, inner + shared + group * d.state_size, d.state_size);
    double dt = in[static_cast<size_t>(2 * inner + 2 * shared + head)];
    dt = Softplus(dt + m.tensors.at(d.dt_bias.name)[h]);
    dt = std::clamp(dt, static_cast<double>(d.dt_min),
                    static_cast<double>(d.dt_max));
    const double decay =
        std::exp(-dt * std::exp(m.tensors.at(d.a_log.name)[h]));
    for (int64_t p = 0; p < d.head_dim; ++p) {
      double sum = m.tensors.at(d.d.name)[h] * x[static_cast<size_t>(p)];
      for (int64_t n = 0; n < d.state_size; ++n) {
        double& cell =
            s[static_cast<size_t>((head * d.state_size + n) * d.head_dim + p)];
        cell = decay * cell +
               dt * b[static_cast<size_t>(n)] * x[static_cast<size_t>(p)];
        sum += c[static_cast<size_t>(n)] * cell;
      }
      const auto i = static_cast<size_t>(head * d.head_dim + p);
      y[i] = sum * Silu(in[i]);
    }
  }
  const int64_t size = inner / d.norm_groups;
  Doubles out;
  for (int64_t group = 0; group < d.norm_groups; ++group) {
    NormDescription norm;
    norm.eps = d.norm_eps;
    const Doubles part = Normalized(norm, HeadOf(y, group, size), m.tensors);
    out.insert(out.end(), part.begin(), part.end());
  }
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] *= m.tensors.at(d.norm_weight.name)[i];
  }
  return Apply(d.out, out, m.tensors, m.rounding);
}

}  // namespace reprise
