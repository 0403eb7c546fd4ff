#include "engine/kernels/wkv_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/engine/kernels/simd_targets.h"

namespace reprise::wkv_kernel_test {
namespace {

using Floats = std::vector<float>;

Floats Random(int64_t n, uint32_t seed, float mean, float deviation) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(mean, deviation);
  Floats values(static_cast<size_t>(n));
  for (float& value : values) value = normal(generator);
  return values;
}

struct Problem {
  Problem(int64_t rows, int64_t channels, float mean)
      : rows(rows),
        channels(channels),
        k(Random(rows * channels, 1, mean, 6)),
        v(Random(rows * channels, 2, 0, 1)),
        decay(Random(channels, 3, 0, 2)),
        bonus(Random(channels, 4, 0, 3)),
        numerator(static_cast<size_t>(channels)),
        denominator(numerator),
        peak(numerator) {
    for (float& value : decay) value = -std::exp(value);
  }

  void Run(int64_t first, int64_t last, int64_t from, int64_t to) {
    Wkv({.k = k.data() + first * channels + from,
         .v = v.data() + first * channels + from,
         .y = v.data() + first * channels + from,
         .stride = channels,
         .rows = last - first,
         .channels = to - from,
         .decay = decay.data() + from,
         .bonus = bonus.data() + from,
         .numerator = numerator.data() + from,
         .denominator = denominator.data() + from,
         .peak = peak.data() + from});
  }

  int64_t rows, channels;
  Floats k, v, decay, bonus, numerator, denominator, peak;
};

// The definition: a mean of all values so far, without any running sum. Keys
// far from 0 on either side, where exp(k) would be 0 or infinite.
TEST(WkvKernelTest, IsAWeightedMeanOfTheValuesSoFar) {
  ForEveryTarget([] {
    for (const float mean : {-300.0F, 0.0F, 300.0F}) {
      for (const int64_t channels : {1, 4, 16, 37}) {
        const Problem start(30, channels, mean);
        Problem problem = start;
        problem.Run(0, 30, 0, channels);
        for (int64_t c = 0; c < channels; ++c) {
          for (int64_t t = 0; t < 30; ++t) {
            std::vector<double> exponents;
            for (int64_t j = 0; j < t; ++j) {
              exponents.push_back(start.k[j * channels + c] +
                                  static_cast<double>(start.decay[c]) *
                                      (t - 1 - j));
            }
            exponents.push_back(static_cast<double>(start.bonus[c]) +
                                start.k[t * channels + c]);
            const double peak =
                *std::max_element(exponents.begin(), exponents.end());
            double sum = 0, weights = 0;
            for (int64_t j = 0; j <= t; ++j) {
              const double weight = std::exp(exponents[j] - peak);
              sum += weight * start.v[j * channels + c];
              weights += weight;
            }
            // An exponent near 300, summed up in f32, errs by 2e-5 and more,
            // of which a mean of numbers near 1 sees about as much.
            ASSERT_NEAR(problem.v[t * channels + c], sum / weights, 3e-4)
                << "row " << t << " channel " << c;
          }
        }
      }
    }
  });
}

TEST(WkvKernelTest, SplitsOfRowsAndChannelsChangeNoBit) {
  ForEveryTarget([] {
    Problem whole(20, 37, 0);
    Problem split = whole;
    whole.Run(0, 20, 0, 37);
    const std::vector<int64_t> cuts = {0, 1, 18, 34, 37};
    for (size_t i = 1; i < cuts.size(); ++i) {
      split.Run(0, 1, cuts[i - 1], cuts[i]);
      split.Run(1, 14, cuts[i - 1], cuts[i]);
      split.Run(14, 20, cuts[i - 1], cuts[i]);
    }
    EXPECT_EQ(split.v, whole.v);
    EXPECT_EQ(split.numerator, whole.numerator);
    EXPECT_EQ(split.denominator, whole.denominator);
    EXPECT_EQ(split.peak, whole.peak);
  });
}

}  // namespace
}  // namespace reprise::wkv_kernel_test
