#include "engine/kernels/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/engine/kernels/simd_targets.h"

namespace reprise::quantize_test {
namespace {

using Floats = std::vector<float>;

constexpr int64_t kMaxN = 70;  // beyond two vectors of any target

Floats Random(size_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Floats values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

// Both forms of a row.
struct Forms {
  explicit Forms(const Floats& x)
      : q(x.size() + 1, 99), shifted(x.size() + 1, 99) {
    const auto n = std::ssize(x);
    scale = QuantizeSigned(x.data(), n, q.data());
    scales = {scale, QuantizeShifted(x.data(), n, shifted.data())};
  }
  float scale = 0;
  Floats scales;
  std::vector<int8_t> q;
  std::vector<uint8_t> shifted;
};

TEST(QuantizeTest, NumbersLieWithinHalfAStepInBothForms) {
  ForEveryTarget([] {
    for (size_t n = 1; n <= kMaxN; ++n) {
      Floats x = Random(n, static_cast<uint32_t>(n));
      const Forms forms(x);
      int largest = 0;
      for (size_t i = 0; i < n; ++i) {
        const int q = forms.q[i];
        largest = std::max(largest, std::abs(q));
        // The factor and the product are rounded: 127 * 2^-23 of a step.
        ASSERT_NEAR(x[i] / forms.scale, q, 0.5 + 2e-5) << i << " of " << n;
        ASSERT_EQ(forms.shifted[i], q + 128);
      }
      ASSERT_EQ(largest, 127);
      for (const float scale : forms.scales) ASSERT_EQ(scale, forms.scale);
      // Nothing is written past the end.
      ASSERT_EQ(forms.q[n], 99);
      ASSERT_EQ(forms.shifted[n], 99);
    }
  });
}

TEST(QuantizeTest, RoundsTiesToEvenAndBothSignsAlike) {
  ForEveryTarget([] {
    const Floats x = {127, 0.5F, 1.5F, 2.5F, -0.5F, -1.5F, -2.5F, -127, 126.5F};
    const Forms forms(x);
    EXPECT_EQ(forms.scale, 1);
    const std::vector<int8_t> expected = {127, 0,  2,    2,   0,
                                          -2,  -2, -127, 126, 99};
    EXPECT_EQ(forms.q, expected);
  });
}

TEST(QuantizeTest, ZerosAndTheSmallestNumbersHaveAScaleAboveZero) {
  ForEveryTarget([] {
    for (const float value : {0.0F, -0.0F, 0x1p-149F, 0x1p-126F}) {
      const Forms forms(Floats(20, value));
      EXPECT_GT(forms.scale, 0);
      EXPECT_EQ(forms.q[3], value == 0x1p-126F ? 1 : 0);
    }
    EXPECT_EQ(Forms(Floats(20, std::numeric_limits<float>::max())).q[0], 127);
  });
}

TEST(QuantizeTest, OneNumberThatIsNotFiniteMakesTheScaleNan) {
  ForEveryTarget([] {
    for (const uint32_t bits : {0x7f800000U, 0xff800000U, 0x7f800001U,
                                0xffc00000U, 0x7fffffffU, 0xffffffffU}) {
      for (size_t place = 0; place < 37; ++place) {
        Floats x = Random(37, 5);
        x[place] = std::bit_cast<float>(bits);
        const Forms forms(x);
        for (const float scale : forms.scales) ASSERT_TRUE(std::isnan(scale));
        for (size_t i = 0; i < 37; ++i) {
          ASSERT_EQ(forms.q[i], 0);
          ASSERT_EQ(forms.shifted[i], 128);
        }
        ASSERT_EQ(forms.q[37], 99);
      }
    }
  });
}

TEST(DequantizeTest, ScalesDifferencesAndAddsTheBias) {
  ForEveryTarget([] {
    std::mt19937 generator(6);
    std::uniform_int_distribution<int32_t> sum(-(1 << 30), 1 << 30);
    for (size_t n = 1; n <= kMaxN; ++n) {
      std::vector<int32_t> sums(n);
      std::vector<int32_t> offsets(n);
      for (int32_t& value : sums) value = sum(generator);
      for (int32_t& value : offsets) value = sum(generator) / 1024;
      const Floats scales = Random(n, 7);
      const Floats bias = Random(n, 8);
      for (const bool all : {true, false}) {
        const float* const b = all ? bias.data() : nullptr;
        const int32_t* const o = all ? offsets.data() : nullptr;
        // In place, as Linear uses it.
        Floats y(n + 1, 42);
        for (size_t i = 0; i < n; ++i) y[i] = std::bit_cast<float>(sums[i]);
        Dequantize({scales.data(), b, o, 0x1p-31F},
                   reinterpret_cast<const int32_t*>(y.data()),
                   static_cast<int64_t>(n), y.data());
        for (size_t i = 0; i < n; ++i) {
          const double sum =
              static_cast<double>(sums[i]) - (all ? offsets[i] : 0);
          const double exact = sum * scales[i] * 0x1p-31 + (all ? bias[i] : 0);
          // Four roundings at most, of numbers below 4 and the result.
          ASSERT_NEAR(y[i], exact, 4 * 0x1p-24 * (4 + std::abs(exact)));
        }
        ASSERT_EQ(y[n], 42) << "written past the end";
      }
    }
  });
}

TEST(DequantizeTest, AScaleThatIsNanMakesEveryNumberNan) {
  ForEveryTarget([] {
    const std::vector<int32_t> sums = {0, 1, -1, 1 << 30, 0, 5, 6, 7, 8, 9, 10};
    const std::vector<int32_t> offsets(sums.size());
    const Floats scales(sums.size(), 1);
    Floats y(sums.size());
    Dequantize({scales.data(), nullptr, offsets.data(), std::nanf("")},
               sums.data(), std::ssize(sums), y.data());
    for (const float value : y) EXPECT_TRUE(std::isnan(value));
  });
}

}  // namespace
}  // namespace reprise::quantize_test
