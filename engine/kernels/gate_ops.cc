#include "engine/kernels/gate_ops.h"

#include <algorithm>
#include <cstddef>
#include <limits>

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/gate_ops.cc"
#include "hwy/foreach_target.h"  // must come first
// clang-format on
#include "engine/kernels/activation_ops.h"
#include "engine/kernels/tile_ops.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

// Compiled once per target.
HWY_BEFORE_NAMESPACE();
namespace reprise {
namespace HWY_NAMESPACE {

// x[i] = op(d, x[i]).
template <class Op>
HWY_INLINE void Map(float* x, int64_t n, Op op) {
  ForColumns<1>(static_cast<size_t>(n), [&](auto d, auto, size_t i) HWY_ATTR {
    hn::StoreU(op(d, hn::LoadU(d, x + i)), d, x + i);
  });
}

// Highway's Exp is meant for x up to 104, and maps NaN to 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpOf(D d, V x) {
  const V limited = hn::Min(x, hn::Set(d, 100.0f));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, limited));
}

void Exp(float* x, int64_t n) {
  Map(x, n, [](auto d, auto v) HWY_ATTR { return ExpOf(d, v); });
}

void ExpOfNonPositive(double* x, int64_t n) {
  const hn::ScalableTag<double> d;
  const size_t lanes = hn::Lanes(d);
  const auto size = static_cast<size_t>(n);
  size_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    hn::StoreU(hn::Exp(d, hn::LoadU(d, x + i)), d, x + i);
  }
  // The same operations for the rest, one by one.
  const hn::CappedTag<double, 1> one;
  for (; i < size; ++i) {
    hn::StoreU(hn::Exp(one, hn::LoadU(one, x + i)), one, x + i);
  }
}

double SoftmaxTerms(const float* x, int64_t n, float highest, float temperature,
                    float* terms) {
  // Finite for every temperature.
  const float inverse =
      std::min(1 / temperature, std::numeric_limits<float>::max());
  const auto term = [&](auto d, size_t i) HWY_ATTR {
    const auto v = hn::LoadU(d, x + i);
    const auto below = hn::Sub(v, hn::Set(d, highest));
    const auto power = ExpUpToZero(d, hn::Mul(below, hn::Set(d, inverse)));
    const auto value = hn::IfThenElseZero(hn::IsFinite(v), power);
    hn::StoreU(value, d, terms + i);
    return value;
  };
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto size = static_cast<size_t>(n);
  auto sum0 = hn::Zero(d), sum1 = sum0;
  size_t i = 0;
  for (; i + 2 * lanes <= size; i += 2 * lanes) {
    sum0 = hn::Add(sum0, term(d, i));
    sum1 = hn::Add(sum1, term(d, i + lanes));
  }
  double total = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  const hn::CappedTag<float, 1> one;
  for (; i < size; ++i) total += hn::GetLane(term(one, i));
  return total;
}

void Sigmoid(float* x, int64_t n) {
  Map(x, n, [](auto d, auto v) HWY_ATTR { return SigmoidOf(d, v); });
}

void Softplus(float* x, int64_t n) {
  Map(x, n, [](auto d, auto v) HWY_ATTR { return SoftplusOf(d, v); });
}

void Tanh(float* x, int64_t n) {
  Map(x, n, [](auto d, auto v) HWY_ATTR {
    return hn::IfThenElse(hn::IsNaN(v), v, hn::Tanh(d, v));
  });
}

void SquaredRelu(float* x, int64_t n) {
  Map(x, n, [](auto d, auto v) HWY_ATTR {
    const auto r = hn::IfThenZeroElse(hn::Lt(v, hn::Zero(d)), v);
    return hn::Mul(r, r);
  });
}

void ExpMinusExp(float* x, int64_t n) {
  Map(x, n,
      [](auto d, auto v) HWY_ATTR { return ExpOf(d, hn::Neg(ExpOf(d, v))); });
}

void PowerOfSigmoid(const SigmoidPower& power, int64_t n, float* x) {
  Map(x, n, [&](auto d, auto v) HWY_ATTR {
    const auto log =
        hn::Mul(hn::Set(d, -power.factor), SoftplusOf(d, hn::Neg(v)));
    const auto least = hn::Set(d, power.min_log);
    return ExpUpToZero(d, hn::IfThenElse(hn::Lt(log, least), least, log));
  });
}

void ExpOfProduct(const float* a, const float* b, int64_t n, float* out) {
  ForColumns<1>(static_cast<size_t>(n), [&](auto d, auto, size_t i) HWY_ATTR {
    const auto product = hn::Mul(hn::LoadU(d, a + i), hn::LoadU(d, b + i));
    hn::StoreU(ExpOf(d, product), d, out + i);
  });
}

void Interpolate(const float* a, const float* b, const float* t, int64_t n,
                 float* out) {
  ForColumns<1>(static_cast<size_t>(n), [&](auto d, auto, size_t i) HWY_ATTR {
    const auto from = hn::LoadU(d, a + i);
    const auto way = hn::Sub(hn::LoadU(d, b + i), from);
    hn::StoreU(hn::MulAdd(way, hn::LoadU(d, t + i), from), d, out + i);
  });
}

void SkipAndGate(const float* skip, const float* x, const float* z, int64_t n,
                 float* o) {
  ForColumns<1>(static_cast<size_t>(n), [&](auto d, auto, size_t i) HWY_ATTR {
    const auto sum = hn::MulAdd(hn::LoadU(d, skip + i), hn::LoadU(d, x + i),
                                hn::LoadU(d, o + i));
    hn::StoreU(hn::Mul(SiluOf(d, hn::LoadU(d, z + i)), sum), d, o + i);
  });
}

void MultiplyAdd(const float* a, const float* x, const float* y, int64_t n,
                 float* out) {
  ForColumns<1>(static_cast<size_t>(n), [&](auto d, auto, size_t i) HWY_ATTR {
    const auto sum = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, x + i),
                                hn::LoadU(d, y + i));
    hn::StoreU(sum, d, out + i);
  });
}

void Subtract(const float* a, const float* b, int64_t n, float* out) {
  ForColumns<1>(static_cast<size_t>(n), [&](auto d, auto, size_t i) HWY_ATTR {
    hn::StoreU(hn::Sub(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  });
}

void ScaleKey(const float* kk, const float* k_a, int64_t n, float* k,
              float* a) {
  ForColumns<1>(static_cast<size_t>(n), [&](auto d, auto, size_t i) HWY_ATTR {
    const auto one = hn::Set(d, 1.0f);
    const auto rate = hn::LoadU(d, a + i);
    const auto factor =
        hn::MulAdd(hn::Sub(rate, one), hn::LoadU(d, k_a + i), one);
    hn::StoreU(hn::Mul(hn::LoadU(d, k + i), factor), d, k + i);
    hn::StoreU(hn::Neg(hn::Mul(rate, hn::LoadU(d, kk + i))), d, a + i);
  });
}

void AddAndGate(float bonus, const float* v, const float* g, int64_t n,
                float* o) {
  ForColumns<1>(static_cast<size_t>(n), [&](auto d, auto, size_t i) HWY_ATTR {
    const auto sum =
        hn::MulAdd(hn::Set(d, bonus), hn::LoadU(d, v + i), hn::LoadU(d, o + i));
    hn::StoreU(hn::Mul(sum, hn::LoadU(d, g + i)), d, o + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise {

HWY_EXPORT(Exp);
HWY_EXPORT(ExpOfNonPositive);
HWY_EXPORT(SoftmaxTerms);
HWY_EXPORT(Sigmoid);
HWY_EXPORT(Softplus);
HWY_EXPORT(Tanh);
HWY_EXPORT(SquaredRelu);
HWY_EXPORT(ExpMinusExp);
HWY_EXPORT(PowerOfSigmoid);
HWY_EXPORT(ExpOfProduct);
HWY_EXPORT(Interpolate);
HWY_EXPORT(SkipAndGate);
HWY_EXPORT(MultiplyAdd);
HWY_EXPORT(Subtract);
HWY_EXPORT(ScaleKey);
HWY_EXPORT(AddAndGate);

void Exp(float* x, int64_t n) { HWY_DYNAMIC_DISPATCH(Exp)(x, n); }

void ExpOfNonPositive(double* x, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ExpOfNonPositive)(x, n);
}

double SoftmaxTerms(const float* x, int64_t n, float highest, float temperature,
                    float* terms) {
  return HWY_DYNAMIC_DISPATCH(SoftmaxTerms)(x, n, highest, temperature, terms);
}

void Sigmoid(float* x, int64_t n) { HWY_DYNAMIC_DISPATCH(Sigmoid)(x, n); }

void Softplus(float* x, int64_t n) { HWY_DYNAMIC_DISPATCH(Softplus)(x, n); }

void Tanh(float* x, int64_t n) { HWY_DYNAMIC_DISPATCH(Tanh)(x, n); }

void SquaredRelu(float* x, int64_t n) {
  HWY_DYNAMIC_DISPATCH(SquaredRelu)(x, n);
}

void ExpMinusExp(float* x, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ExpMinusExp)(x, n);
}

void PowerOfSigmoid(const SigmoidPower& power, int64_t n, float* x) {
  HWY_DYNAMIC_DISPATCH(PowerOfSigmoid)(power, n, x);
}

void ExpOfProduct(const float* a, const float* b, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(ExpOfProduct)(a, b, n, out);
}

void Interpolate(const float* a, const float* b, const float* t, int64_t n,
                 float* out) {
  HWY_DYNAMIC_DISPATCH(Interpolate)(a, b, t, n, out);
}

void SkipAndGate(const float* skip, const float* x, const float* z, int64_t n,
                 float* o) {
  HWY_DYNAMIC_DISPATCH(SkipAndGate)(skip, x, z, n, o);
}

void MultiplyAdd(const float* a, const float* x, const float* y, int64_t n,
                 float* out) {
  HWY_DYNAMIC_DISPATCH(MultiplyAdd)(a, x, y, n, out);
}

void Subtract(const float* a, const float* b, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(Subtract)(a, b, n, out);
}

void ScaleKey(const float* kk, const float* k_a, int64_t n, float* k,
              float* a) {
  HWY_DYNAMIC_DISPATCH(ScaleKey)(kk, k_a, n, k, a);
}

void AddAndGate(float bonus, const float* v, const float* g, int64_t n,
                float* o) {
  HWY_DYNAMIC_DISPATCH(AddAndGate)(bonus, v, g, n, o);
}

}  // namespace reprise
#endif  // HWY_ONCE
