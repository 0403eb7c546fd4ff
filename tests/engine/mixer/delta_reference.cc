// The delta-rule mixers as plain loops in double.
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "engine/model/delta_description.h"
#include "tests/engine/mixer/reference_math.h"
#include "tests/engine/mixer/reference_steps.h"

namespace reprise {
namespace {

double SiluOf(double x) { return x * Sigmoid(x); }

void Activate(HeadActivation activation, Doubles& x) {
  for (double& v : x) {
    switch (activation) {
      case HeadActivation::kIdentity:
        break;
      case HeadActivation::kSilu:
        v = SiluOf(v);
        break;
      case HeadActivation::kRelu:
        v = std::max(v, 0.0);
        break;
      case HeadActivation::kEluPlusOne:
        v = v > 0 ? v + 1 : std::exp(v);
        break;
    }
  }
}

Doubles NormedHead(HeadNorm norm, const Doubles& x, int64_t head, int64_t dim) {
  Doubles y = HeadOf(x, head, dim);
  double sum = 0;
  for (const double v : y) sum += norm == HeadNorm::kL2 ? v * v : v;
  const double divisor = norm == HeadNorm::kL2 ? std::sqrt(sum + 1e-6) : sum;
  for (double& v : y) v /= divisor;
  return y;
}

// S' = decay S, S = S' + beta k (v - S'^T k)^T; returns S^T q.
Doubles DeltaRule(const Doubles& q, const Doubles& k, const Doubles& v,
                  double decay, double beta, double* s) {
  const size_t width = v.size();
  Doubles o(width);
  for (size_t j = 0; j < width; ++j) {
    double held = 0;
    for (size_t i = 0; i < k.size(); ++i) {
      s[i * width + j] *= decay;
      held += k[i] * s[i * width + j];
    }
    for (size_t i = 0; i < k.size(); ++i) {
      s[i * width + j] += beta * k[i] * (v[j] - held);
      o[j] += q[i] * s[i * width + j];
    }
  }
  return o;
}

}  // namespace

Doubles StepOf(const DeltaNetDescription& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState& state) {
  const auto apply = [&](const LinearRef& ref) {
    return Apply(ref, x, m.tensors, m.rounding);
  };
  Doubles qkv = apply(d.q);
  for (const LinearRef* ref : {&d.k, &d.v}) {
    const Doubles more = apply(*ref);
    qkv.insert(qkv.end(), more.begin(), more.end());
  }
  auto at = qkv.begin();
  for (const DeltaConvolution& c : d.convolutions) {
    const Doubles y = Convolved(c.conv, Doubles(at, at + c.conv.channels),
                                m.tensors, state[c.field]);
    at = std::copy(y.begin(), y.end(), at);
  }
  const int64_t key_width = d.key_heads * d.key_dim;
  Doubles q(qkv.begin(), qkv.begin() + key_width);
  Doubles k(qkv.begin() + key_width, qkv.begin() + 2 * key_width);
  Doubles v(qkv.begin() + 2 * key_width, qkv.end());
  Activate(d.qk_activation, q);
  Activate(d.qk_activation, k);
  Activate(d.v_activation, v);

  const Doubles beta = d.beta.weight ? apply(d.beta) : Doubles();
  const Doubles decay = d.decay.weight ? apply(d.decay) : Doubles();
  const Doubles gate = d.gate.weight ? apply(d.gate) : Doubles();
  Doubles& s = state["recurrent"];
  s.resize(static_cast<size_t>(d.heads * d.key_dim * d.value_dim));
  Doubles out;
  for (int64_t head = 0; head < d.heads; ++head) {
    const size_t h = static_cast<size_t>(head);
    const int64_t key_head = head / (d.heads / d.key_heads);
    double factor = 1;
    if (d.decay.weight) {
      const double dt = decay[h] + m.tensors.at(d.dt_bias.name)[h];
      const double rate = std::exp(m.tensors.at(d.a_log.name)[h]);
      factor = std::exp(-rate * std::log(1 + std::exp(dt)));
    }
    Doubles o = DeltaRule(NormedHead(d.qk_norm, q, key_head, d.key_dim),
                          NormedHead(d.qk_norm, k, key_head, d.key_dim),
                          HeadOf(v, head, d.value_dim), factor,
                          d.beta_scale * (d.beta.weight ? Sigmoid(beta[h]) : 1),
                          s.data() + head * d.key_dim * d.value_dim);
    for (double& value : o) value *= d.scale;
    o = Normalized(d.output_norm, o, m.tensors);
    for (size_t j = 0; j < o.size() && d.gate.weight; ++j) {
      o[j] *= SiluOf(gate[h * o.size() + j]);
    }
    out.insert(out.end(), o.begin(), o.end());
  }
  return Apply(d.o, out, m.tensors, m.rounding);
}

}  // namespace reprise
