#include "tests/engine/mixer/reference.h"

#include <algorithm>
#include <cmath>

#include "engine/model/ffn_descriptions.h"
#include "engine/model/linear_attention_description.h"
#include "tests/engine/mixer/reference_math.h"
#include "tests/engine/mixer/reference_steps.h"

namespace reprise {
namespace {

Doubles Features(FeatureMap map, const FeatureLayers& layers, const Doubles& x,
                 const ReferenceTensors& tensors) {
  const auto layer = [&](const LinearRef& ref) {
    return Apply(ref, x, tensors, ReferenceRounding::kNone);
  };
  const size_t d = x.size();
  Doubles f;
  switch (map) {
    case FeatureMap::kIdentity:
      return x;
    case FeatureMap::kRelu:
      for (const double v : x) f.push_back(std::max(v, 0.0));
      return f;
    case FeatureMap::kEluPlusOne:
      for (const double v : x) f.push_back(v > 0 ? v + 1 : std::exp(v));
      return f;
    case FeatureMap::kElementwiseProduct: {
      const Doubles a = layer(layers.layer1);
      const Doubles b = layer(layers.layer2);
      for (size_t i = 0; i < d; ++i) f.push_back(a[i] * b[i]);
      return f;
    }
    case FeatureMap::kHedgehog: {
      const Doubles y = layer(layers.layer1);
      for (const double v : y) f.push_back(std::exp(2 * v));
      for (const double v : y) f.push_back(std::exp(-2 * v));
      double sum = 0;
      for (const double v : f) sum += v;
      for (double& v : f) v /= sum;
      return f;
    }
    case FeatureMap::kFavor: {
      const double n = static_cast<double>(layers.random_features);
      double shift = std::log(n) / 2;
      for (const double v : x) shift += layers.temperature * v * v / 2;
      for (const double sign : {1.0, -1.0}) {
        for (const double u : layer(layers.layer1)) {
          f.push_back(std::exp(
              sign * std::sqrt(static_cast<double>(layers.temperature)) * u -
              shift));
        }
      }
      return f;
    }
    case FeatureMap::kT2r:
      for (const double v : layer(layers.layer1)) {
        f.push_back(std::max(v, 0.0));
      }
      return f;
    case FeatureMap::kDpfp: {
      Doubles u;
      for (const double v : x) u.push_back(std::max(v, 0.0));
      for (const double v : x) u.push_back(-std::max(v, 0.0));
      for (int j = 1; j <= 4; ++j) {
        Doubles rolled = u;  // the last j numbers come first
        for (int k = 0; k < j; ++k) {
          rolled.insert(rolled.begin(), rolled.back());
          rolled.pop_back();
        }
        for (size_t i = 0; i < 2 * d; ++i) f.push_back(u[i] * rolled[i]);
      }
      return f;
    }
  }
  return f;
}

Doubles StepOf(const LinearAttentionDescription& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState& state) {
  const Doubles q = Apply(d.q, x, m.tensors, m.rounding);
  const Doubles k = Apply(d.k, x, m.tensors, m.rounding);
  const Doubles v = Apply(d.v, x, m.tensors, m.rounding);
  const int64_t features = FeatureDim(d.feature_map, d.key_dim, d.q_layers);
  Doubles& s = state["recurrent"];
  s.resize(static_cast<size_t>(d.heads * features * d.value_dim));
  Doubles& z = state["z"];
  z.resize(static_cast<size_t>(d.heads * features));
  Doubles out;
  for (int64_t head = 0; head < d.heads; ++head) {
    const int64_t kv = head / (d.heads / d.kv_heads);
    Doubles fq = Features(d.feature_map, d.q_layers, HeadOf(q, head, d.key_dim),
                          m.tensors);
    Doubles fk = Features(d.feature_map, d.k_layers, HeadOf(k, kv, d.key_dim),
                          m.tensors);
    const auto sum_to_one = [](Doubles& f) {
      double sum = 1e-4;
      for (const double value : f) sum += value;
      for (double& value : f) value /= sum;
    };
    if (d.q_sum_to_one) sum_to_one(fq);
    if (d.k_sum_to_one) sum_to_one(fk);
    const Doubles fv = HeadOf(v, kv, d.value_dim);
    Doubles o(static_cast<size_t>(d.value_dim));
    double norm = d.epsilon;
    for (int64_t i = 0; i < features; ++i) {
      const size_t row = static_cast<size_t>(head * features + i);
      z[row] += fk[static_cast<size_t>(i)];
      norm += d.scale * fq[static_cast<size_t>(i)] * z[row];
      for (size_t j = 0; j < o.size(); ++j) {
        double& cell = s[row * o.size() + j];
        cell += fk[static_cast<size_t>(i)] * fv[j];
        o[j] += d.scale * fq[static_cast<size_t>(i)] * cell;
      }
    }
    if (d.normalize) {
      for (double& value : o) value /= norm;
    }
    if (d.output_norm) o = Normalized(*d.output_norm, o, m.tensors);
    out.insert(out.end(), o.begin(), o.end());
  }
  if (!d.normalize) state.erase("z");
  return Apply(d.o, out, m.tensors, m.rounding);
}

Doubles StepOf(const GatedFfnDescription& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState&) {
  const Doubles gate = Apply(d.gate, x, m.tensors, m.rounding);
  Doubles up = Apply(d.up, x, m.tensors, m.rounding);
  for (size_t i = 0; i < up.size(); ++i) up[i] *= Silu(gate[i]);
  return Apply(d.down, up, m.tensors, m.rounding);
}

Doubles StepOf(const PlainFfnDescription& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState&) {
  Doubles up = Apply(d.up, x, m.tensors, m.rounding);
  for (double& v : up) {
    v = Activated(d.activation, v);
  }
  return Apply(d.down, up, m.tensors, m.rounding);
}

// The one of Descriptions that the mixer has; CHECKs that there is one.
template <class... Descriptions>
Doubles StepOfAny(const ReferenceMixer& m, const Doubles& x,
                  ReferenceState& state) {
  Doubles y;
  const auto step = [&](const auto* d) {
    if (d != nullptr) y = StepOf(*d, m, x, state);
    return d != nullptr;
  };
  CHECK((step(m.description.AsIf<Descriptions>()) || ...));
  return y;
}

}  // namespace

Doubles ReferenceMixer::Step(const Doubles& x, ReferenceState& state) const {
  return StepOfAny<DeltaNetDescription, GatedFfnDescription,
                   GatedLinearAttentionDescription, LinearAttentionDescription,
                   MambaDescription, Mamba2Description, MoeFfnDescription,
                   PlainFfnDescription, RetentionDescription,
                   Rwkv4TimeMixDescription, Rwkv7Description,
                   Rwkv7FfnDescription, RwkvChannelMixDescription,
                   RwkvTimeMixDescription, SoftmaxAttentionDescription>(
      *this, x, state);
}

}  // namespace reprise
