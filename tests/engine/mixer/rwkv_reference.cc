#include <algorithm>
#include <cmath>

#include "engine/model/rwkv_descriptions.h"
#include "tests/engine/mixer/reference_math.h"
#include "tests/engine/mixer/reference_steps.h"

namespace reprise {
namespace {

// How much of the predecessor is seen.
double Share(const RwkvMix& mix, size_t i, const ReferenceTensors& tensors) {
  const double stored =
      tensors.at(mix.share.tensor.name)[static_cast<size_t>(mix.first) + i];
  return mix.of_now ? 1 - stored : stored;
}

Doubles Mixed(const RwkvMix& mix, const Doubles& x, const Doubles& before,
              const ReferenceTensors& tensors) {
  Doubles y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] + (before[i] - x[i]) * Share(mix, i, tensors);
  }
  return y;
}

// The last input, which x replaces.
Doubles Predecessor(const std::string& field, const Doubles& x,
                    ReferenceState& state) {
  Doubles before = state[field];
  before.resize(x.size());
  state[field] = x;
  return before;
}

// In double whatever the rounding, as the engine has these in f32.
Doubles Small(const LinearRef& ref, const Doubles& x,
              const ReferenceTensors& tensors) {
  return Apply(ref, x, tensors, ReferenceRounding::kNone);
}

Doubles TanhOf(Doubles x) {
  for (double& value : x) value = std::tanh(value);
  return x;
}

Doubles PartInput(const RwkvTimeMixDescription& d, size_t part,
                  const Doubles& x, const Doubles& before,
                  const ReferenceTensors& tensors) {
  if (!d.dynamic_mix) return Mixed(d.mixes[part], x, before, tensors);
  const RwkvDynamicMixDescription& dynamic = *d.dynamic_mix;
  const Doubles t = TanhOf(
      Small(dynamic.down, Mixed(dynamic.mix, x, before, tensors), tensors));
  const Doubles& up = tensors.at(dynamic.up.name);
  const auto rank = static_cast<size_t>(dynamic.rank);
  Doubles y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    double share = Share(d.mixes[part], i, tensors);
    for (size_t j = 0; j < rank; ++j) {
      const size_t place = static_cast<size_t>(dynamic.places[part]) * rank + j;
      const size_t at = dynamic.by_output ? i * kRwkvParts * rank + place
                                          : place * x.size() + i;
      share += up[at] * t[place];
    }
    y[i] = x[i] + (before[i] - x[i]) * share;
  }
  return y;
}

// Number `i` of a head's `dim`, where there is one for each or one for all.
double OfHead(const Doubles& values, const RwkvTimeMixDescription& d,
              int64_t head, int64_t i) {
  const bool per_head = std::ssize(values) == d.heads;
  return values[static_cast<size_t>(per_head ? head : head * d.key_dim + i)];
}

}  // namespace

Doubles StepOf(const RwkvTimeMixDescription& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState& state) {
  const Doubles before = Predecessor("shift_att", x, state);
  const auto input = [&](size_t part) {
    return PartInput(d, part, x, before, m.tensors);
  };
  const Doubles r = Apply(d.r, input(kRwkvR), m.tensors, m.rounding);
  const Doubles k = Apply(d.k, input(kRwkvK), m.tensors, m.rounding);
  const Doubles v = Apply(d.v, input(kRwkvV), m.tensors, m.rounding);
  Doubles w;
  if (d.decay_lora) {
    w = Small(d.decay_lora->up,
              TanhOf(Small(d.decay_lora->down, input(kRwkvW), m.tensors)),
              m.tensors);
  } else {
    w = m.tensors.at(d.decay.tensor.name);
  }
  const Doubles& bonus = m.tensors.at(d.bonus.tensor.name);
  Doubles& s = state["recurrent"];
  s.resize(static_cast<size_t>(d.heads * d.key_dim * d.value_dim));
  Doubles out;
  for (int64_t head = 0; head < d.heads; ++head) {
    Doubles o(static_cast<size_t>(d.value_dim));
    for (int64_t i = 0; i < d.key_dim; ++i) {
      const auto key = static_cast<size_t>(head * d.key_dim + i);
      double u = OfHead(bonus, d, head, i);
      if (d.bonus_exponential) u = std::exp(u);
      const double left = std::exp(-std::exp(OfHead(w, d, head, i)));
      for (size_t j = 0; j < o.size(); ++j) {
        double& cell = s[key * o.size() + j];
        const double kv = k[key] * v[static_cast<size_t>(head) * o.size() + j];
        o[j] += r[key] * (cell + u * kv);
        cell = left * cell + kv;
      }
    }
    NormDescription norm;
    norm.kind = NormKind::kLayer;
    norm.eps = d.output_epsilon;
    o = Normalized(norm, o, m.tensors);
    out.insert(out.end(), o.begin(), o.end());
  }
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = out[i] * m.tensors.at(d.output_weight.name)[i] +
             m.tensors.at(d.output_bias.name)[i];
  }
  if (d.gate.weight) {
    const Doubles gate = Apply(d.gate, input(kRwkvG), m.tensors, m.rounding);
    for (size_t i = 0; i < out.size(); ++i) out[i] *= Silu(gate[i]);
  }
  return Apply(d.o, out, m.tensors, m.rounding);
}

// Numerator and denominator over exp(peak), the largest exponent so far.
Doubles StepOf(const Rwkv4TimeMixDescription& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState& state) {
  const Doubles before = Predecessor("shift_att", x, state);
  const auto project = [&](const LinearRef& ref, const RwkvMix& mix) {
    return Apply(ref, Mixed(mix, x, before, m.tensors), m.tensors, m.rounding);
  };
  const Doubles k = project(d.k, d.mix_k);
  const Doubles v = project(d.v, d.mix_v);
  const Doubles r = project(d.r, d.mix_r);
  const auto width = static_cast<size_t>(d.width);
  Doubles& num = state["aa"];
  Doubles& den = state["bb"];
  Doubles& peak = state["pp"];
  num.resize(width);
  den.resize(width);
  peak.resize(width, -1e30);
  Doubles y(width);
  for (size_t i = 0; i < width; ++i) {
    const double now = m.tensors.at(d.bonus.name)[i] + k[i];
    const double p = std::max(peak[i], now);
    y[i] = Sigmoid(r[i]) *
           (std::exp(peak[i] - p) * num[i] + std::exp(now - p) * v[i]) /
           (std::exp(peak[i] - p) * den[i] + std::exp(now - p));
    const double decayed = peak[i] - std::exp(m.tensors.at(d.decay.name)[i]);
    const double q = std::max(decayed, k[i]);
    num[i] = std::exp(decayed - q) * num[i] + std::exp(k[i] - q) * v[i];
    den[i] = std::exp(decayed - q) * den[i] + std::exp(k[i] - q);
    peak[i] = q;
  }
  return Apply(d.o, y, m.tensors, m.rounding);
}

Doubles StepOf(const RwkvChannelMixDescription& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState& state) {
  const Doubles before = Predecessor("shift_ffn", x, state);
  Doubles hidden =
      Apply(d.key, Mixed(d.mix_k, x, before, m.tensors), m.tensors, m.rounding);
  for (double& value : hidden) {
    value = std::max(value, 0.0) * std::max(value, 0.0);
  }
  const Doubles r = Apply(d.receptance, Mixed(d.mix_r, x, before, m.tensors),
                          m.tensors, m.rounding);
  Doubles y = Apply(d.value, hidden, m.tensors, m.rounding);
  for (size_t i = 0; i < y.size(); ++i) y[i] *= Sigmoid(r[i]);
  return y;
}

}  // namespace reprise
