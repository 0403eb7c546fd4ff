// Against the formulas as they were published, in terms of wavelengths.
#include "engine/model/rotary_scaling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace reprise {
namespace {

// Radians per token of pair i of a head of `dim` numbers.
double Frequency(double base, int dim, int i) {
  return std::pow(base, -2.0 * i / dim);
}

TEST(RotaryScalingTest, NoneAndLinear) {
  EXPECT_EQ(ScaledTurns({}, 0.125), 0.125);
  const RotaryScaling linear = {.kind = RotaryScalingKind::kLinear,
                                .factor = 2.5};
  for (const double turns : {0.15, 1e-3, 1e-9}) {
    EXPECT_DOUBLE_EQ(ScaledTurns(linear, turns), turns / 2.5);
  }
}

TEST(RotaryScalingTest, Llama3OfPublishedModels) {
  constexpr double kTwoPi = 2 * std::numbers::pi;
  struct Published {
    double factor, low, high, positions, base;
    int dim;
  };
  for (const Published& p : {Published{8, 1, 4, 8192, 5e5, 128},     // 3.1
                             Published{32, 1, 4, 8192, 5e5, 64}}) {  // 3.2
    const RotaryScaling scaling = {.kind = RotaryScalingKind::kLlama3,
                                   .factor = p.factor,
                                   .low_frequency_factor = p.low,
                                   .high_frequency_factor = p.high,
                                   .original_positions = p.positions};
    int kept = 0, between = 0, slowed = 0;
    for (int i = 0; i < p.dim / 2; ++i) {
      const double frequency = Frequency(p.base, p.dim, i);
      const double wavelength = kTwoPi / frequency;
      double expected = frequency;
      if (wavelength < p.positions / p.high) {
        ++kept;
      } else if (wavelength > p.positions / p.low) {
        expected = frequency / p.factor;
        ++slowed;
      } else {
        const double smooth =
            (p.positions / wavelength - p.low) / (p.high - p.low);
        expected = (1 - smooth) * frequency / p.factor + smooth * frequency;
        ++between;
      }
      const double turns = ScaledTurns(scaling, frequency / kTwoPi);
      EXPECT_NEAR(turns * kTwoPi / expected, 1, 1e-14) << i;
    }
    // All three kinds of pairs were there.
    EXPECT_GT(kept, 5);
    EXPECT_GT(between, 2);
    EXPECT_GT(slowed, 5);
  }
}

}  // namespace
}  // namespace reprise
