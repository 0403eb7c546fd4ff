#include "engine/kernels/simd_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "tests/engine/kernels/simd_targets.h"

namespace reprise::simd_ops_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kEpsilon = std::numeric_limits<float>::epsilon();
constexpr int64_t kMaxN = 130;  // past twice four AVX-512 vectors

std::vector<float> RandomFloats(int64_t n, uint32_t seed, float scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

// A vector with an element after the end that must stay as it is.
class Guarded {
 public:
  explicit Guarded(std::vector<float> values) : values_(std::move(values)) {
    values_.push_back(kGuard);
  }
  ~Guarded() { EXPECT_EQ(values_.back(), kGuard) << "written past the end"; }
  float* data() { return values_.data(); }
  float operator[](int64_t i) const { return values_[i]; }

 private:
  static constexpr float kGuard = 12345.0f;
  std::vector<float> values_;
};

// Calls body(n) for every n in [1, kMaxN] on every target.
void ForEverySize(const std::function<void(int64_t)>& body) {
  ForEveryTarget([&] {
    for (int64_t n = 1; n <= kMaxN; ++n) {
      SCOPED_TRACE(n);
      body(n);
      if (testing::Test::HasFailure()) return;
    }
  });
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Checks an activation in place against `reference`, to a relative error of
// `ulps` epsilons.
void CheckActivation(void (*activation)(float*, int64_t),
                     double (*reference)(double), double ulps) {
  ForEverySize([&](int64_t n) {
    const auto x = RandomFloats(n, n, /*scale=*/8);
    Guarded y(x);
    activation(y.data(), n);
    for (int64_t i = 0; i < n; ++i) {
      const double exact = reference(x[i]);
      ASSERT_NEAR(
          y[i], exact,
          ulps * kEpsilon * std::abs(exact) + std::numeric_limits<float>::min())
          << "x = " << x[i];
    }
  });
}

TEST(SimdOpsTest, RmsNorm) {
  ForEverySize([](int64_t n) {
    const auto x = RandomFloats(n, n, /*scale=*/3);
    const auto weight = RandomFloats(n, n + 1000);
    double squares = 0;
    for (const float value : x) squares += double{value} * value;
    const double factor = 1 / std::sqrt(squares / n + 1e-5);
    Guarded weighted(std::vector<float>(n, 0));
    Guarded in_place(x);
    RmsNorm(x.data(), weight.data(), n, 1e-5f, weighted.data());
    RmsNorm(in_place.data(), nullptr, n, 1e-5f, in_place.data());
    // The sum of n squares errs by n epsilons at most, its root by half.
    const double bound = (n / 2.0 + 4) * kEpsilon;
    for (int64_t i = 0; i < n; ++i) {
      const double exact = x[i] * factor;
      ASSERT_NEAR(in_place[i], exact, bound * std::abs(exact));
      ASSERT_NEAR(weighted[i], exact * weight[i],
                  bound * std::abs(exact * weight[i]));
    }
  });
}

TEST(SimdOpsTest, LayerNorm) {
  ForEverySize([](int64_t n) {
    auto x = RandomFloats(n, n);
    for (float& value : x) value += 10;
    const auto weight = RandomFloats(n, n + 1000);
    const auto bias = RandomFloats(n, n + 2000);
    double mean = 0;
    for (const float value : x) mean += double{value} / n;
    double variance = 0;
    for (const float value : x) variance += std::pow(value - mean, 2) / n;
    const double factor = 1 / std::sqrt(variance + 1e-5);
    Guarded full(std::vector<float>(n, 0));
    Guarded in_place(x);
    LayerNorm(x.data(), weight.data(), bias.data(), n, 1e-5f, full.data());
    LayerNorm(in_place.data(), nullptr, nullptr, n, 1e-5f, in_place.data());
    // The mean of values near 10 errs by 10 n epsilons; `factor` enlarges that.
    const double bound = (10 * n + 20) * kEpsilon * (1 + factor);
    for (int64_t i = 0; i < n; ++i) {
      const double exact = (x[i] - mean) * factor;
      ASSERT_NEAR(in_place[i], exact, bound * (1 + std::abs(exact)));
      ASSERT_NEAR(full[i], exact * weight[i] + bias[i],
                  bound * (1 + std::abs(exact)) * (1 + std::abs(weight[i])));
    }
  });
}

TEST(SimdOpsTest, SumsProductsAndScalesRoundOnce) {
  ForEverySize([](int64_t n) {
    const auto a = RandomFloats(n, n);
    const auto b = RandomFloats(n, n + 1000);
    Guarded sum(b);
    Guarded product(std::vector<float>(n, 0));
    Guarded scaled(a);
    AddInto(a.data(), n, sum.data());
    Multiply(a.data(), b.data(), n, product.data());
    Scale(0.3f, n, scaled.data());
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(sum[i], b[i] + a[i]);
      ASSERT_EQ(product[i], a[i] * b[i]);
      ASSERT_EQ(scaled[i], a[i] * 0.3f);
    }
  });
}

TEST(SimdOpsTest, Relu) {
  CheckActivation(
      Relu, [](double x) { return x > 0 ? x : 0; }, /*ulps=*/0);
}

TEST(SimdOpsTest, GeluExact) {
  // The argument x / sqrt(2) is rounded, and erfc turns its relative error e
  // into x^2 e; |x| < 13 where the result is a normal number.
  CheckActivation(
      GeluExact,
      [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); },
      /*ulps=*/13 * 13 + 4);
}

TEST(SimdOpsTest, Silu) {
  CheckActivation(
      Silu, [](double x) { return x * Sigmoid(x); }, /*ulps=*/4);
}

TEST(SimdOpsTest, EluPlusOne) {
  CheckActivation(
      EluPlusOne, [](double x) { return x > 0 ? x + 1 : std::exp(x); },
      /*ulps=*/2);
}

TEST(SimdOpsTest, SiluMultiply) {
  ForEverySize([](int64_t n) {
    const auto gate = RandomFloats(n, n, /*scale=*/8);
    const auto up = RandomFloats(n, n + 1000);
    Guarded y(gate);
    SiluMultiply(y.data(), up.data(), n, y.data());
    for (int64_t i = 0; i < n; ++i) {
      const double exact = gate[i] * Sigmoid(gate[i]) * up[i];
      ASSERT_NEAR(y[i], exact, 5 * kEpsilon * std::abs(exact) + 1e-37);
    }
  });
}

TEST(SimdOpsTest, ActivationsOfExtremes) {
  ForEveryTarget([] {
    const std::vector<float> x = {-kInfinity, kInfinity, -200, -104, -88,
                                  -0.0f,      0,         88,   104,  200};
    auto elu = x;
    EluPlusOne(elu.data(), std::ssize(elu));
    auto silu = x;
    Silu(silu.data(), std::ssize(silu));
    EXPECT_EQ(elu[0], 0);
    EXPECT_TRUE(std::isnan(silu[0]));  // -inf * 0, as PyTorch has it
    EXPECT_EQ(elu[1], kInfinity);
    EXPECT_EQ(silu[1], kInfinity);
    for (size_t i = 2; i < x.size(); ++i) {
      EXPECT_NEAR(elu[i], x[i] > 0 ? x[i] + 1 : std::exp(x[i]), 1e-38f);
      EXPECT_NEAR(silu[i], x[i] > 0 ? x[i] : 0, 1e-35f);
    }
  });
}

TEST(SimdOpsTest, NanStaysNan) {
  ForEverySize([](int64_t n) {
    for (auto* activation : {Relu, GeluExact, Silu, EluPlusOne, Softmax}) {
      auto x = RandomFloats(n, n);
      x[n / 2] = kNan;
      activation(x.data(), n);
      ASSERT_TRUE(std::isnan(x[n / 2]));
    }
  });
}

TEST(SimdOpsTest, Softmax) {
  ForEverySize([](int64_t n) {
    auto x = RandomFloats(n, n, /*scale=*/20);
    if (n > 2) x[n / 2] = -kInfinity;  // masked
    const double max = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const float value : x) sum += std::exp(value - max);
    Guarded y(x);
    Softmax(y.data(), n);
    for (int64_t i = 0; i < n; ++i) {
      const double exact = std::exp(x[i] - max) / sum;
      // x - max is rounded, and exp turns its error into a relative one.
      const double difference = std::isinf(x[i]) ? 0 : max - x[i];
      ASSERT_NEAR(y[i], exact, (n + 4 + difference) * kEpsilon * exact + 1e-37);
    }
  });
}

TEST(SimdOpsTest, SumAndMax) {
  ForEverySize([](int64_t n) {
    const auto x = RandomFloats(n, n);
    double sum = 0;
    double magnitude = 0;
    for (const float value : x) sum += value, magnitude += std::abs(value);
    ASSERT_NEAR(Sum(x.data(), n), sum, n * kEpsilon * magnitude);
    ASSERT_EQ(Max(x.data(), n), *std::max_element(x.begin(), x.end()));
    const std::vector<float> below(n, -7.0f);  // no zero of a tail gets in
    ASSERT_EQ(Max(below.data(), n), -7.0f);
  });
}

TEST(SimdOpsTest, AllFiniteFindsEveryPlace) {
  ForEverySize([](int64_t n) {
    auto x = RandomFloats(n, n);
    x[0] = std::numeric_limits<float>::max();
    ASSERT_TRUE(AllFinite(x.data(), n));
    for (const float bad : {kInfinity, -kInfinity, kNan}) {
      for (int64_t i = 0; i < n; ++i) {
        const float kept = std::exchange(x[i], bad);
        ASSERT_FALSE(AllFinite(x.data(), n)) << i;
        x[i] = kept;
      }
    }
  });
}

TEST(SimdOpsTest, HighestFinite) {
  ForEverySize([](int64_t n) {
    const auto x = RandomFloats(n, n);
    for (int64_t i = 0; i < n; ++i) {
      auto with = x;
      with[i] = 1e30F;
      ASSERT_EQ(HighestFinite(with.data(), n), 1e30F) << i;
      for (const float bad : {kInfinity, -kInfinity, kNan}) {
        auto others = x;
        others.erase(others.begin() + i);
        const float expected =
            others.empty() ? -kInfinity
                           : *std::max_element(others.begin(), others.end());
        with[i] = bad;
        ASSERT_EQ(HighestFinite(with.data(), n), expected) << i;
      }
    }
  });
}

TEST(SimdOpsTest, KeepFinite) {
  ForEverySize([](int64_t n) {
    auto x = RandomFloats(n, n);
    for (const float bad : {kInfinity, -kInfinity, kNan}) {
      for (int64_t i = 0; i < n; ++i) {
        auto expected = x;
        expected[i] = -kInfinity;
        auto out = x;
        out[i] = bad;
        KeepFinite(out.data(), n, out.data());
        ASSERT_EQ(out, expected) << i;
      }
    }
  });
}

// All 65536 patterns, also in vectors that do not end on a full one.
std::vector<uint16_t> AllPatterns() {
  std::vector<uint16_t> patterns(65536);
  for (size_t i = 0; i < patterns.size(); ++i) {
    patterns[i] = static_cast<uint16_t>(i);
  }
  patterns.insert(patterns.end(), {0x3c00, 0x8001, 0x7bff});
  return patterns;
}

// The value of an IEEE 754 half, from its definition.
double HalfValue(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const double magnitude =
      exponent == 31  ? (mantissa == 0 ? HUGE_VAL : std::nan(""))
      : exponent == 0 ? std::ldexp(mantissa, -24)
                      : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(SimdOpsTest, WidensEveryHalf) {
  ForEveryTarget([] {
    const auto patterns = AllPatterns();
    std::vector<float> out(patterns.size());
    F16ToF32(patterns.data(), std::ssize(patterns), out.data());
    for (size_t i = 0; i < patterns.size(); ++i) {
      const double exact = HalfValue(patterns[i]);
      if (std::isnan(exact)) {
        ASSERT_TRUE(std::isnan(out[i])) << patterns[i];
      } else {
        ASSERT_EQ(out[i], exact) << patterns[i];
        ASSERT_EQ(std::signbit(out[i]), std::signbit(exact)) << patterns[i];
      }
    }
  });
}

TEST(SimdOpsTest, WidensAndNarrowsEveryBf16) {
  ForEveryTarget([] {
    const auto patterns = AllPatterns();
    std::vector<float> wide(patterns.size());
    std::vector<uint16_t> narrow(patterns.size());
    Bf16ToF32(patterns.data(), std::ssize(patterns), wide.data());
    F32ToBf16(wide.data(), std::ssize(wide), narrow.data());
    for (size_t i = 0; i < patterns.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), uint32_t{patterns[i]} << 16);
      if (std::isnan(wide[i])) {
        ASSERT_EQ(narrow[i], patterns[i] | 0x40);  // quiet
      } else {
        ASSERT_EQ(narrow[i], patterns[i]);
      }
    }
  });
}

TEST(SimdOpsTest, RoundsToBf16ToNearestEven) {
  ForEveryTarget([] {
    const std::vector<std::pair<uint32_t, uint16_t>> cases = {
        {0x3f808000, 0x3f80},  // half way, even below
        {0x3f818000, 0x3f82},  // half way, even above
        {0x3f808001, 0x3f81}, {0x3f807fff, 0x3f80},
        {0xbf818000, 0xbf82}, {0x7f7fffff, 0x7f80},  // rounds up to infinity
        {0x7f800000, 0x7f80}, {0x7f800001, 0x7fc0},  // NaN of low bits only
        {0x00008000, 0x0000}, {0x00018000, 0x0002},  // subnormal
    };
    for (size_t n = 1; n <= cases.size(); ++n) {
      std::vector<float> x;
      for (size_t i = 0; i < n; ++i) {
        x.push_back(std::bit_cast<float>(cases[i].first));
      }
      std::vector<uint16_t> out(n + 1, 0xabcd);
      F32ToBf16(x.data(), std::ssize(x), out.data());
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(out[i], cases[i].second) << i;
      ASSERT_EQ(out[n], 0xabcd) << "written past the end";
    }
  });
}

}  // namespace
}  // namespace reprise::simd_ops_test
