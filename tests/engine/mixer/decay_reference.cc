#include <algorithm>
#include <cmath>

#include "engine/model/decay_descriptions.h"
#include "tests/engine/mixer/reference_math.h"
#include "tests/engine/mixer/reference_steps.h"

namespace reprise {
namespace {

// S = Diag(w) S + k v^T of one head; returns scale S^T q. S begins at `s`.
Doubles Decayed(const Doubles& q, const Doubles& k, const Doubles& v,
                const Doubles& w, double scale, double* s) {
  Doubles o(v.size());
  for (size_t i = 0; i < k.size(); ++i) {
    for (size_t j = 0; j < v.size(); ++j) {
      double& cell = s[i * v.size() + j];
      cell = w[i] * cell + k[i] * v[j];
      o[j] += scale * q[i] * cell;
    }
  }
  return o;
}

// From prepared q, k and v and the decays of all heads, [heads * key_dim].
Doubles Attend(const DecayAttentionDescription& d, const ReferenceMixer& m,
               const Doubles& x, const Doubles& q, const Doubles& k,
               const Doubles& v, const Doubles& w, ReferenceState& state) {
  Doubles& s = state["recurrent"];
  s.resize(static_cast<size_t>(d.heads * d.key_dim * d.value_dim));
  Doubles gate;
  if (d.gate.weight) gate = Apply(d.gate, x, m.tensors, m.rounding);
  Doubles out;
  for (int64_t head = 0; head < d.heads; ++head) {
    const int64_t kv = head / (d.heads / d.kv_heads);
    Doubles o =
        Decayed(HeadOf(q, head, d.key_dim), HeadOf(k, kv, d.key_dim),
                HeadOf(v, kv, d.value_dim), HeadOf(w, head, d.key_dim), d.scale,
                &s[static_cast<size_t>(head * d.key_dim * d.value_dim)]);
    o = Normalized(d.output_norm, o, m.tensors);
    out.insert(out.end(), o.begin(), o.end());
  }
  for (size_t i = 0; i < gate.size(); ++i) out[i] *= Silu(gate[i]);
  return Apply(d.o, out, m.tensors, m.rounding);
}

void Activate(const std::optional<Activation>& activation, Doubles& x) {
  if (!activation) return;
  for (double& value : x) value = Activated(*activation, value);
}

void Rotate(int64_t dim, double base, int64_t position, Doubles& x) {
  const auto half = static_cast<size_t>(dim / 2);
  for (size_t head = 0; head < x.size(); head += 2 * half) {
    for (size_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(position) *
          std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
      const double a = x[head + i];
      const double b = x[head + half + i];
      x[head + i] = a * std::cos(angle) - b * std::sin(angle);
      x[head + half + i] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
}

}  // namespace

Doubles StepOf(const RetentionDescription& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState& state) {
  const DecayAttentionDescription& a = d.attention;
  Doubles q = Apply(a.q, x, m.tensors, m.rounding);
  Doubles k = Apply(a.k, x, m.tensors, m.rounding);
  const Doubles v = Apply(a.v, x, m.tensors, m.rounding);
  for (Doubles* rows : {&q, &k}) {
    Activate(a.activation, *rows);
    Rotate(a.key_dim, d.rotary_base, m.position, *rows);
  }
  Doubles w;
  for (const float decay : d.decay) {
    w.insert(w.end(), static_cast<size_t>(a.key_dim), decay);
  }
  return Attend(a, m, x, q, k, v, w, state);
}

Doubles StepOf(const GatedLinearAttentionDescription& d,
               const ReferenceMixer& m, const Doubles& x,
               ReferenceState& state) {
  const DecayAttentionDescription& a = d.attention;
  Doubles q = Apply(a.q, x, m.tensors, m.rounding);
  Doubles k = Apply(a.k, x, m.tensors, m.rounding);
  Doubles v = Apply(a.v, x, m.tensors, m.rounding);
  if (!d.convs.empty()) {
    q = Convolved(d.convs[0], q, m.tensors, state["conv_q"]);
    k = Convolved(d.convs[1], k, m.tensors, state["conv_k"]);
    v = Convolved(d.convs[2], v, m.tensors, state["conv_v"]);
  }
  Activate(a.activation, q);
  Activate(a.activation, k);
  const Doubles down = Apply(d.decay_down, x, m.tensors, m.rounding);
  // Of low rank, and f32 whatever the type.
  const Doubles up =
      Apply(d.decay_up, down, m.tensors, ReferenceRounding::kNone);
  Doubles w;
  for (int64_t head = 0; head < a.heads; ++head) {
    for (const double g :
         HeadOf(up, head / (a.heads / a.kv_heads), a.key_dim)) {
      double log = -Softplus(-g) / d.decay_normalizer;
      if (d.min_log_decay) {
        log = std::max(log, static_cast<double>(*d.min_log_decay));
      }
      w.push_back(std::exp(log));
    }
  }
  return Attend(a, m, x, q, k, v, w, state);
}

}  // namespace reprise
