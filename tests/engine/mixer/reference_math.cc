#include "tests/engine/mixer/reference_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "engine/model/short_conv_description.h"

namespace reprise {
namespace {

// Round to nearest, ties to even, of the upper 16 bits of a float.
double ToBf16(double x) {
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(x));
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  return std::bit_cast<float>(rounded & 0xffff0000);
}

double Rounded(double x, double step, ReferenceRounding rounding) {
  switch (rounding) {
    case ReferenceRounding::kBf16:
      return ToBf16(x);
    case ReferenceRounding::kInt8:
      return step == 0 ? 0 : std::nearbyint(x / step) * step;
    case ReferenceRounding::kNone:
      break;
  }
  return x;
}

// What eight bits resolve of n numbers.
double Int8Step(const double* x, size_t n) {
  double largest = 0;
  for (size_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(x[i]));
  return largest / 127;
}

}  // namespace

Doubles Apply(const LinearRef& ref, const Doubles& x,
              const ReferenceTensors& tensors, ReferenceRounding rounding) {
  const Doubles& w = tensors.at(ref.weight.name);
  const size_t in = x.size();
  const size_t out = w.size() / in;
  Doubles y(out);
  const double x_step = Int8Step(x.data(), in);
  for (size_t o = 0; o < out; ++o) {
    double sum = ref.bias ? tensors.at(ref.bias.name)[o] : 0;
    const double w_step = Int8Step(&w[o * in], in);
    for (size_t i = 0; i < in; ++i) {
      sum += Rounded(w[o * in + i], w_step, rounding) *
             Rounded(x[i], x_step, rounding);
    }
    y[o] = sum;
  }
  return y;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

Doubles Normalized(const NormDescription& norm, const Doubles& x,
                   const ReferenceTensors& tensors) {
  const double n = static_cast<double>(x.size());
  double mean = 0;
  if (norm.kind == NormKind::kLayer) {
    for (const double v : x) mean += v / n;
  }
  double square = 0;
  for (const double v : x) square += (v - mean) * (v - mean) / n;
  Doubles y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = (x[i] - mean) / std::sqrt(square + norm.eps);
    if (norm.weight) y[i] *= tensors.at(norm.weight.name)[i];
    if (norm.bias) y[i] += tensors.at(norm.bias.name)[i];
  }
  return y;
}

Doubles HeadOf(const Doubles& x, int64_t head, int64_t dim) {
  return Doubles(x.begin() + head * dim, x.begin() + (head + 1) * dim);
}

double Silu(double x) { return x * Sigmoid(x); }

double Softplus(double x) { return std::log1p(std::exp(x)); }

double Activated(Activation activation, double x) {
  switch (activation) {
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::kSilu:
      return Silu(x);
  }
  return x;
}

Doubles Convolved(const ShortConvDescription& conv, const Doubles& x,
                  const ReferenceTensors& tensors, Doubles& state) {
  const auto taps = static_cast<size_t>(conv.taps);
  state.resize(x.size() * taps);
  const Doubles& weight = tensors.at(conv.weight.name);
  Doubles y(x.size());
  for (size_t c = 0; c < x.size(); ++c) {
    double* inputs = &state[c * taps];
    for (size_t j = 0; j + 1 < taps; ++j) inputs[j] = inputs[j + 1];
    inputs[taps - 1] = x[c];
    y[c] = conv.bias ? tensors.at(conv.bias.name)[c] : 0;
    for (size_t j = 0; j < taps; ++j) y[c] += weight[c * taps + j] * inputs[j];
    if (conv.silu) y[c] = Silu(y[c]);
  }
  return y;
}

}  // namespace reprise
