// What activation_ops.h promises of each function, on every SIMD target.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/engine/kernels/simd_targets.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/engine/kernels/activation_ops_test.cc"
#include "hwy/foreach_target.h"  // must come first
// clang-format on
#include "engine/kernels/activation_ops.h"
#include "hwy/highway.h"

// Compiled once per target.
HWY_BEFORE_NAMESPACE();
namespace reprise {
namespace HWY_NAMESPACE {

template <class Function>
void ForVectors(std::vector<float>& x, const Function& function) {
  const hn::ScalableTag<float> d;
  const size_t n = hn::Lanes(d);
  x.resize((x.size() + n - 1) / n * n);
  for (size_t i = 0; i < x.size(); i += n) {
    hn::StoreU(function(d, hn::LoadU(d, &x[i])), d, &x[i]);
  }
}
void Exp(std::vector<float>& x) {
  ForVectors(x, [](auto d, auto v) HWY_ATTR { return ExpUpToZero(d, v); });
}
void Exp2(std::vector<float>& x) {
  ForVectors(x, [](auto d, auto v) HWY_ATTR { return Exp2UpToZero(d, v); });
}
void Log1p(std::vector<float>& x) {
  ForVectors(x, [](auto d, auto v) HWY_ATTR { return Log1pUpToOne(d, v); });
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise {
namespace {

HWY_EXPORT(Exp);
HWY_EXPORT(Exp2);
HWY_EXPORT(Log1p);

// Distance in units of the last place of the exact result.
double UnitsApart(float value, double exact) {
  const float rounded = static_cast<float>(exact);
  const double unit =
      static_cast<double>(std::nextafter(rounded, 2 * rounded)) - rounded;
  return std::abs(value - exact) / std::abs(unit);
}

// Numbers all over `low` to `high`, both in it.
std::vector<float> Over(double low, double high) {
  constexpr int kSteps = 100'000;
  std::vector<float> x;
  for (int i = 0; i <= kSteps; ++i) {
    x.push_back(static_cast<float>(low + (high - low) * i / kSteps));
  }
  return x;
}

template <class Compute, class Exact>
void ExpectWithin(double units, const std::vector<float>& x,
                  const Compute& compute, const Exact& exact) {
  std::vector<float> y = x;
  compute(y);
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = exact(static_cast<double>(x[i]));
    if (expected == 0) {
      ASSERT_EQ(y[i], 0.0F) << x[i];
    } else {
      ASSERT_LE(UnitsApart(y[i], expected), units) << x[i];
    }
  }
}

TEST(ActivationOpsTest, ExpIsWithinTwoUnits) {
  const auto exp = [](std::vector<float>& x) { HWY_DYNAMIC_DISPATCH(Exp)(x); };
  ForEveryTarget([&] {
    ExpectWithin(2, Over(-87.33, 0), exp, [](double x) { return std::exp(x); });
    ExpectWithin(2, Over(-1, 0), exp, [](double x) { return std::exp(x); });
    std::vector<float> x = {-87.34F, -1e4F,
                            -std::numeric_limits<float>::infinity()};
    exp(x);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(x[i], 0.0F);
    x = {std::numeric_limits<float>::quiet_NaN()};
    exp(x);
    EXPECT_TRUE(std::isnan(x[0]));
  });
}

TEST(ActivationOpsTest,
     Exp2IsWithinLittleMoreThanTwoUnitsAndAlmostNothingFarBelow) {
  const auto exp2 = [](std::vector<float>& x) {
    HWY_DYNAMIC_DISPATCH(Exp2)(x);
  };
  ForEveryTarget([&] {
    ExpectWithin(2.25, Over(-126, 0), exp2,
                 [](double x) { return std::exp2(x); });
    ExpectWithin(2.25, Over(-1, 0), exp2,
                 [](double x) { return std::exp2(x); });
    std::vector<float> x = {-126.5F, -1e4F,
                            -std::numeric_limits<float>::infinity()};
    exp2(x);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_GE(x[i], 0.0F);
      EXPECT_LE(x[i], 0x1p-125F);
    }
  });
}

TEST(ActivationOpsTest, Log1pIsWithinThreeUnits) {
  const auto log1p = [](std::vector<float>& x) {
    HWY_DYNAMIC_DISPATCH(Log1p)(x);
  };
  ForEveryTarget([&] {
    ExpectWithin(3, Over(0, 1), log1p, [](double x) { return std::log1p(x); });
    ExpectWithin(3, Over(1e-30, 1e-6), log1p,
                 [](double x) { return std::log1p(x); });
  });
}

}  // namespace
}  // namespace reprise
#endif  // HWY_ONCE
