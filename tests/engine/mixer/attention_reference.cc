// Softmax attention as plain loops in double.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "engine/model/softmax_attention_description.h"
#include "tests/engine/mixer/reference_math.h"
#include "tests/engine/mixer/reference_steps.h"

namespace reprise {
namespace {

// Llama 3.1's formula as it was published, for the radians per token of a pair.
double Llama3Frequency(const RotaryScaling& s, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < s.original_positions / s.high_frequency_factor) {
    return frequency;
  }
  if (wavelength > s.original_positions / s.low_frequency_factor) {
    return frequency / s.factor;
  }
  const double smooth =
      (s.original_positions / wavelength - s.low_frequency_factor) /
      (s.high_frequency_factor - s.low_frequency_factor);
  return (1 - smooth) * frequency / s.factor + smooth * frequency;
}

// Turns the pairs (i, i + rotary_dim / 2) of a head's first numbers.
void Rotate(const SoftmaxAttentionDescription& d, int64_t position,
            Doubles& head) {
  const auto half = static_cast<size_t>(d.rotary_dim / 2);
  for (size_t i = 0; i < half; ++i) {
    double frequency = std::pow(
        d.rotary_base, -static_cast<double>(i) / static_cast<double>(half));
    if (d.rotary_scaling.kind == RotaryScalingKind::kLlama3) {
      frequency = Llama3Frequency(d.rotary_scaling, frequency);
    }
    const double angle = static_cast<double>(position) * frequency;
    const double a = head[i];
    const double b = head[half + i];
    head[i] = a * std::cos(angle) - b * std::sin(angle);
    head[half + i] = a * std::sin(angle) + b * std::cos(angle);
  }
}

Doubles Prepared(const SoftmaxAttentionDescription& d, const ReferenceMixer& m,
                 const std::optional<NormDescription>& norm, Doubles head) {
  if (norm) head = Normalized(*norm, head, m.tensors);
  Rotate(d, m.position, head);
  return head;
}

// Row `row` of a head's keys or values, of which each token has `width`.
const double* At(const Doubles& rows, size_t row, int64_t width, int64_t head,
                 int64_t dim) {
  return rows.data() + row * static_cast<size_t>(width) + head * dim;
}

}  // namespace

Doubles StepOf(const SoftmaxAttentionDescription& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState& state) {
  const Doubles q = Apply(d.q, x, m.tensors, m.rounding);
  const Doubles k = Apply(d.k, x, m.tensors, m.rounding);
  const Doubles v = Apply(d.v, x, m.tensors, m.rounding);
  const int64_t width = d.kv_heads * d.head_dim;
  Doubles& keys = state["attn_k"];
  Doubles& values = state["attn_v"];
  for (int64_t head = 0; head < d.kv_heads; ++head) {
    const Doubles key = Prepared(d, m, d.k_norm, HeadOf(k, head, d.head_dim));
    keys.insert(keys.end(), key.begin(), key.end());
  }
  values.insert(values.end(), v.begin(), v.end());
  if (d.window > 0 && std::ssize(values) > d.window * width) {
    keys.erase(keys.begin(), keys.begin() + width);
    values.erase(values.begin(), values.begin() + width);
  }
  const size_t tokens = values.size() / static_cast<size_t>(width);
  Doubles out;
  for (int64_t head = 0; head < d.heads; ++head) {
    const int64_t kv = head / (d.heads / d.kv_heads);
    // With a gate, every head has its query and then its gate.
    const int64_t part = d.output_gate ? 2 * head : head;
    const Doubles query = Prepared(d, m, d.q_norm, HeadOf(q, part, d.head_dim));
    Doubles o(static_cast<size_t>(d.head_dim));
    double sum = 0;
    for (size_t token = 0; token < tokens; ++token) {
      const double* key = At(keys, token, width, kv, d.head_dim);
      const double* value = At(values, token, width, kv, d.head_dim);
      double score = 0;
      for (size_t i = 0; i < o.size(); ++i) score += query[i] * key[i];
      const double weight = std::exp(d.scale * score);
      sum += weight;
      for (size_t i = 0; i < o.size(); ++i) o[i] += weight * value[i];
    }
    for (double& number : o) number /= sum;
    if (d.output_gate) {
      const Doubles gate = HeadOf(q, part + 1, d.head_dim);
      for (size_t i = 0; i < o.size(); ++i) o[i] *= Sigmoid(gate[i]);
    }
    out.insert(out.end(), o.begin(), o.end());
  }
  return Apply(d.o, out, m.tensors, m.rounding);
}

}  // namespace reprise
