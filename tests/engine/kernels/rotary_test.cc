#include "engine/kernels/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "tests/engine/kernels/simd_targets.h"

namespace reprise::rotary_test {
namespace {

// Half turns per token that models have: theta^(-i / half).
std::vector<double> Turns(int64_t half, double theta) {
  std::vector<double> turns;
  for (int64_t i = 0; i < half; ++i) {
    turns.push_back(
        std::pow(theta, -static_cast<double>(i) / static_cast<double>(half)) /
        (2 * std::numbers::pi));
  }
  return turns;
}

TEST(RotaryTest, AnglesAreRightAtAnyPosition) {
  ForEveryTarget([] {
    for (const int64_t half : {1, 8, 12, 64}) {
      const std::vector<double> turns = Turns(half, 10000);
      std::vector<float> cos_sin(static_cast<size_t>(2 * half));
      for (const int64_t position : {0, 1, 137, 32767, 10'000'000}) {
        RotaryAngles(turns.data(), half, position, cos_sin.data());
        for (int64_t i = 0; i < half; ++i) {
          const long double angle =
              2 * std::numbers::pi_v<long double> *
              static_cast<long double>(turns[static_cast<size_t>(i)]) *
              static_cast<long double>(position);
          // The angle is rounded to f32 within +-pi (2e-7 at most), and the
          // polynomials are good to 3 units in the last place.
          EXPECT_NEAR(cos_sin[static_cast<size_t>(i)], std::cos(angle), 4e-7);
          EXPECT_NEAR(cos_sin[static_cast<size_t>(half + i)], std::sin(angle),
                      4e-7);
        }
      }
    }
  });
}

TEST(RotaryTest, TurnsThePairsHalfAHeadApart) {
  ForEveryTarget([] {
    const int64_t half = 19;  // whole vectors and a tail
    std::vector<float> cos_sin;
    std::vector<float> x;
    for (int i = 0; i < 2 * half; ++i) {
      cos_sin.push_back(static_cast<float>(i < half ? 0.6 : 0.8));
      x.push_back(static_cast<float>(i));
    }
    x.push_back(7);  // behind the rotated part
    Rotate(cos_sin.data(), half, x.data());
    for (int i = 0; i < half; ++i) {
      const double a = i;
      const double b = i + half;
      EXPECT_NEAR(x[i], 0.6 * a - 0.8 * b, 1e-5);
      EXPECT_NEAR(x[i + half], 0.6 * b + 0.8 * a, 1e-5);
    }
    EXPECT_EQ(x.back(), 7);
  });
}

}  // namespace
}  // namespace reprise::rotary_test
