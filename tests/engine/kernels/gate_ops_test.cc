#include "engine/kernels/gate_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "tests/engine/kernels/simd_targets.h"

namespace reprise::gate_ops_test {
namespace {

using Floats = std::vector<float>;

constexpr double kEpsilon = std::numeric_limits<float>::epsilon();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Floats RandomFloats(size_t n, uint32_t seed, float scale) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  Floats values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

// What every function is checked on: all tails, and what is large or nothing.
std::vector<Floats> Inputs() {
  std::vector<Floats> inputs;
  for (size_t n = 1; n <= 40; ++n) {
    inputs.push_back(RandomFloats(n, static_cast<uint32_t>(n), 6));
  }
  inputs.push_back({0.0F, 1e-20F, -1e-20F, 60.0F, -60.0F, 1e4F, -1e4F});
  return inputs;
}

// Checks `op` in place against `reference` to `ulps` epsilons.
void CheckOp(const std::function<void(float*, int64_t)>& op,
             const std::function<double(double)>& reference, double ulps) {
  ForEveryTarget([&] {
    for (const Floats& x : Inputs()) {
      Floats y = x;
      y.push_back(12345);
      op(y.data(), std::ssize(x));
      for (size_t i = 0; i < x.size(); ++i) {
        const double exact = reference(x[i]);
        ASSERT_NEAR(y[i], exact,
                    ulps * kEpsilon * std::abs(exact) +
                        std::numeric_limits<float>::min())
            << "x = " << x[i];
      }
      ASSERT_EQ(y.back(), 12345);
    }
    float nan = kNan;
    op(&nan, 1);
    EXPECT_TRUE(std::isnan(nan));
  });
}

double Softplus64(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

TEST(GateOpsTest, ExpOfNonPositive) {
  constexpr double kDoubleEpsilon = std::numeric_limits<double>::epsilon();
  std::mt19937 generator(1);
  std::uniform_real_distribution<double> uniform(-745, 0);
  ForEveryTarget([&] {
    for (int64_t n = 1; n <= 40; ++n) {
      std::vector<double> x(static_cast<size_t>(n));
      for (double& value : x)
        value = uniform(generator) / static_cast<double>(n);
      x[0] = n % 2 == 0 ? 0 : -std::numeric_limits<double>::infinity();
      std::vector<double> y = x;
      y.push_back(12345);
      ExpOfNonPositive(y.data(), n);
      for (size_t i = 0; i < x.size(); ++i) {
        const double exact = std::exp(x[i]);
        ASSERT_NEAR(
            y[i], exact,
            2 * kDoubleEpsilon * exact + std::numeric_limits<double>::min())
            << "x = " << x[i];
        // A number's result is its own, wherever it stands.
        double alone = x[i];
        ExpOfNonPositive(&alone, 1);
        ASSERT_EQ(alone, y[i]);
      }
      ASSERT_EQ(y.back(), 12345);
    }
  });
}

TEST(GateOpsTest, SoftmaxTerms) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  ForEveryTarget([&] {
    for (const Floats& input : Inputs()) {
      for (const float temperature : {1e-38f, 0.3f, 1.0f, 2.0f}) {
        Floats x = input;
        const float highest = *std::max_element(x.begin(), x.end());
        x.insert(x.begin(), {kNan, kInfinity, -kInfinity});
        std::vector<float> terms(x.size() + 1, 12345);
        const double sum = SoftmaxTerms(x.data(), std::ssize(x), highest,
                                        temperature, terms.data());
        double total = 0, bound = 0;
        for (size_t i = 0; i < x.size(); ++i) {
          const double power = (double{x[i]} - highest) / temperature;
          const double exact = std::isfinite(x[i]) ? std::exp(power) : 0;
          total += exact;
          // Three roundings of the exponent, half a unit each, which exp makes
          // as many times larger as it is itself; and two units of exp.
          const double units = exact > 0 ? 2 - 1.5 * power : 0;
          const double error =
              units * kEpsilon * exact + std::numeric_limits<float>::min();
          bound += error;
          ASSERT_NEAR(terms[i], exact, error)
              << "x = " << x[i] << ", temperature = " << temperature;
        }
        // The sum is rounded at each addition.
        const double additions = kEpsilon * static_cast<double>(x.size());
        ASSERT_NEAR(sum, total, bound + additions * total);
        ASSERT_EQ(terms.back(), 12345);
      }
    }
  });
}

TEST(GateOpsTest, Sigmoid) {
  CheckOp(
      Sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, 4);
}

TEST(GateOpsTest, Softplus) { CheckOp(Softplus, Softplus64, 4); }

TEST(GateOpsTest, Tanh) {
  CheckOp(
      Tanh, [](double x) { return std::tanh(x); }, 6);
}

TEST(GateOpsTest, SquaredRelu) {
  CheckOp(
      SquaredRelu, [](double x) { return std::pow(std::max(x, 0.0), 2); }, 1);
}

TEST(GateOpsTest, Exp) {
  // Up to where the largest float is near.
  CheckOp(
      [](float* x, int64_t n) {
        for (int64_t i = 0; i < n; ++i) x[i] = std::min(x[i], 80.0F);
        Exp(x, n);
      },
      [](double x) { return std::exp(std::min(x, 80.0)); }, 4);
}

// The inner exponential errs by an epsilon or two, and the outer one turns that
// into as many epsilons times its exponent; what is below 1e-38 is 0.
TEST(GateOpsTest, ExpMinusExp) {
  ForEveryTarget([] {
    for (const Floats& x : Inputs()) {
      Floats y = x;
      ExpMinusExp(y.data(), std::ssize(y));
      for (size_t i = 0; i < x.size(); ++i) {
        const double inner = std::exp(static_cast<double>(x[i]));
        const double exact = std::exp(-inner);
        ASSERT_NEAR(y[i], exact,
                    (4 + 4 * std::min(inner, 100.0)) * kEpsilon * exact +
                        std::numeric_limits<float>::min())
            << x[i];
      }
    }
    float nan = kNan;
    ExpMinusExp(&nan, 1);
    EXPECT_TRUE(std::isnan(nan));
  });
}

TEST(GateOpsTest, PowerOfSigmoid) {
  for (const float min_log : {-1e30F, -0.12F}) {
    const SigmoidPower power = {.factor = 1.0F / 16, .min_log = min_log};
    ForEveryTarget([&] {
      for (const Floats& x : Inputs()) {
        Floats y = x;
        PowerOfSigmoid(power, std::ssize(y), y.data());
        for (size_t i = 0; i < x.size(); ++i) {
          const double log =
              std::max(-Softplus64(-x[i]) / 16, static_cast<double>(min_log));
          ASSERT_NEAR(
              y[i], std::exp(log),
              (4 + 4 * std::min(-log, 100.0)) * kEpsilon * std::exp(log) +
                  std::numeric_limits<float>::min())
              << x[i];
        }
      }
    });
  }
}

TEST(GateOpsTest, FunctionsOfSeveralRows) {
  ForEveryTarget([] {
    for (size_t n = 1; n <= 40; ++n) {
      const Floats a = RandomFloats(n, 1, 2);
      const Floats b = RandomFloats(n, 2, 2);
      const Floats c = RandomFloats(n, 3, 2);
      const auto size = static_cast<int64_t>(n);
      Floats exponentials(n), between(n), sum = c, gated = c;
      ExpOfProduct(a.data(), b.data(), size, exponentials.data());
      Interpolate(a.data(), b.data(), c.data(), size, between.data());
      MultiplyAdd(a.data(), b.data(), sum.data(), size, sum.data());
      Floats less(n), key = a, rate = b, bonus = c;
      Subtract(a.data(), b.data(), size, less.data());
      ScaleKey(c.data(), a.data(), size, key.data(), rate.data());
      AddAndGate(0.7F, a.data(), b.data(), size, bonus.data());
      SkipAndGate(a.data(), b.data(), a.data(), size, gated.data());
      for (size_t i = 0; i < n; ++i) {
        const double x = a[i], y = b[i], t = c[i];
        const double product = std::exp(x * y);
        EXPECT_NEAR(exponentials[i], product,
                    (4 + 2 * std::abs(x * y)) * kEpsilon * product);
        const double sizes = std::abs(x) + std::abs(y - x) * std::abs(t);
        EXPECT_NEAR(between[i], x + (y - x) * t, 3 * kEpsilon * sizes);
        const double terms = std::abs(x * y) + std::abs(t);
        EXPECT_NEAR(sum[i], x * y + t, kEpsilon * terms);
        EXPECT_EQ(less[i], a[i] - b[i]);
        const double factors = std::abs(x) * (1 + std::abs((y - 1) * x));
        EXPECT_NEAR(key[i], x * (1 + (y - 1) * x), 3 * kEpsilon * factors);
        EXPECT_EQ(rate[i], -b[i] * c[i]);
        const double added = std::abs(t) + std::abs(0.7F * x);
        EXPECT_NEAR(bonus[i], (t + 0.7F * x) * y,
                    2 * kEpsilon * added * std::abs(y));
        const double silu = x / (1 + std::exp(-x));
        EXPECT_NEAR(gated[i], (t + x * y) * silu,
                    6 * kEpsilon * terms * std::abs(silu));
      }
    }
  });
}

}  // namespace
}  // namespace reprise::gate_ops_test
