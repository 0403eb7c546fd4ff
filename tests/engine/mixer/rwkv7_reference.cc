// RWKV-7's mixers as plain loops in double.
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "engine/model/rwkv7_description.h"
#include "tests/engine/mixer/reference_math.h"
#include "tests/engine/mixer/reference_steps.h"

namespace reprise {
namespace {

// x + (predecessor - x) mix.
Doubles Mixed(const Doubles& x, const Doubles& predecessor, const double* mix) {
  Doubles y;
  for (size_t i = 0; i < x.size(); ++i) {
    y.push_back(x[i] + (predecessor[i] - x[i]) * mix[i]);
  }
  return y;
}

Doubles LoraOf(const LoraDescription& d, double (*within)(double),
               const Doubles& x, const ReferenceTensors& tensors,
               ReferenceRounding rounding) {
  Doubles hidden = Apply(d.down, x, tensors, rounding);
  for (double& v : hidden) v = within(v);
  return Apply(d.up, hidden, tensors, rounding);
}

double Same(double x) { return x; }
double TanhOf(double x) { return std::tanh(x); }

// One head's numbers of what the time mix projects x to.
struct HeadRow {
  Doubles r, w, k, v, a, g, kk;
};

// S[k, v] = w_k S[k, v] - (kk a)_k (sum_j kk_j S[j, v]) + k_k v_v; returns r S.
Doubles Recur(const HeadRow& h, double* s) {
  const size_t dim = h.k.size();
  Doubles o(dim);
  for (size_t j = 0; j < dim; ++j) {
    double held = 0;
    for (size_t i = 0; i < dim; ++i) held += h.kk[i] * s[i * dim + j];
    for (size_t i = 0; i < dim; ++i) {
      double& cell = s[i * dim + j];
      cell = h.w[i] * cell - h.kk[i] * h.a[i] * held + h.k[i] * h.v[j];
      o[j] += h.r[i] * cell;
    }
  }
  return o;
}

// (norm(o) + (sum of r k r_k) v) g, for the head whose numbers are at `first`.
Doubles HeadOutput(const Rwkv7Description& d, const ReferenceTensors& tensors,
                   size_t first, const HeadRow& h, const Doubles& o) {
  double mean = 0, variance = 0, bonus = 0;
  const double n = static_cast<double>(o.size());
  for (const double v : o) mean += v / n;
  for (const double v : o) variance += (v - mean) * (v - mean) / n;
  for (size_t i = 0; i < o.size(); ++i) {
    bonus += h.r[i] * h.k[i] * tensors.at(d.r_k.tensor.name)[first + i];
  }
  Doubles y;
  for (size_t i = 0; i < o.size(); ++i) {
    const double normed = (o[i] - mean) /
                              std::sqrt(variance + d.output_epsilon) *
                              tensors.at(d.output_weight.name)[first + i] +
                          tensors.at(d.output_bias.name)[first + i];
    y.push_back((normed + bonus * h.v[i]) * h.g[i]);
  }
  return y;
}

}  // namespace

Doubles StepOf(const Rwkv7Description& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState& state) {
  Doubles& shift = state["shift_att"];
  shift.resize(x.size());
  Doubles mixes;
  for (const ShapedRef& ref : d.mixes) {
    const Doubles& some = m.tensors.at(ref.tensor.name);
    mixes.insert(mixes.end(), some.begin(), some.end());
  }
  const auto mixed = [&](size_t which) {
    return Mixed(x, shift, &mixes[which * x.size()]);
  };
  const auto apply = [&](const LinearRef& ref, size_t which) {
    return Apply(ref, mixed(which), m.tensors, m.rounding);
  };
  const auto lora = [&](const LoraDescription& part, double (*within)(double),
                        size_t which, ReferenceRounding rounding) {
    return LoraOf(part, within, mixed(which), m.tensors, rounding);
  };
  // What decides how the state decays is f32 whatever the model's type.
  constexpr auto kNone = ReferenceRounding::kNone;
  const Doubles r = apply(d.r, 0);
  Doubles w = lora(d.w, TanhOf, 1, kNone);
  Doubles k = apply(d.k, 2);
  Doubles v = apply(d.v, 3);
  Doubles a = lora(d.a, Same, 4, kNone);
  const Doubles g = lora(d.g, Sigmoid, 5, m.rounding);
  if (d.first_value) {
    const Doubles share = lora(*d.first_value, Same, 3, m.rounding);
    for (size_t i = 0; i < v.size(); ++i) {
      v[i] += ((*m.kept)[i] - v[i]) * Sigmoid(share[i]);
    }
  } else {
    *m.kept = v;
  }
  Doubles kk;
  for (size_t i = 0; i < x.size(); ++i) {
    w[i] = std::exp(-std::exp(-0.5) * Sigmoid(w[i]));
    a[i] = Sigmoid(a[i]);
    kk.push_back(k[i] * m.tensors.at(d.k_k.tensor.name)[i]);
    k[i] *= 1 + (a[i] - 1) * m.tensors.at(d.k_a.tensor.name)[i];
  }
  shift = x;

  Doubles& s = state["recurrent"];
  s.resize(static_cast<size_t>(d.heads * d.head_dim * d.head_dim));
  Doubles out;
  for (int64_t head = 0; head < d.heads; ++head) {
    const auto of = [&](const Doubles& all) {
      return HeadOf(all, head, d.head_dim);
    };
    HeadRow h = {of(r), of(w), of(k), of(v), of(a), of(g), of(kk)};
    double length = d.key_epsilon;
    for (const double value : h.kk) length += value * value;
    for (double& value : h.kk) value /= std::sqrt(length);
    const Doubles o =
        Recur(h, &s[static_cast<size_t>(head * d.head_dim * d.head_dim)]);
    const size_t first = static_cast<size_t>(head * d.head_dim);
    const Doubles y = HeadOutput(d, m.tensors, first, h, o);
    out.insert(out.end(), y.begin(), y.end());
  }
  return Apply(d.o, out, m.tensors, m.rounding);
}

Doubles StepOf(const Rwkv7FfnDescription& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState& state) {
  Doubles& shift = state["shift_ffn"];
  shift.resize(x.size());
  const Doubles mixed = Mixed(x, shift, m.tensors.at(d.mix.tensor.name).data());
  shift = x;
  Doubles hidden = Apply(d.key, mixed, m.tensors, m.rounding);
  for (double& v : hidden) v = std::max(v, 0.0) * std::max(v, 0.0);
  return Apply(d.value, hidden, m.tensors, m.rounding);
}

}  // namespace reprise
