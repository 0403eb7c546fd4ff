#include "engine/kernels/short_conv_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/engine/kernels/simd_targets.h"

namespace reprise::short_conv_kernel_test {
namespace {

constexpr double kEpsilon = std::numeric_limits<float>::epsilon();
constexpr int64_t kGap = 3;  // floats between the channels of two rows

using Floats = std::vector<float>;

struct Problem {
  Problem(int64_t rows, int64_t channels, int64_t taps, bool biased)
      : rows(rows), channels(channels), taps(taps) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    const auto fill = [&](int64_t n) {
      Floats values(static_cast<size_t>(n));
      for (float& value : values) value = normal(generator);
      return values;
    };
    x = fill(rows * (channels + kGap));
    weight = fill(taps * channels);
    if (biased) bias = fill(channels);
    state = fill(channels * taps);
  }

  // The rows [first, last) of the channels [from, to).
  void Run(int64_t first, int64_t last, int64_t from, int64_t to) {
    const int64_t stride = channels + kGap;
    ShortConv({.x = x.data() + first * stride + from,
               .y = x.data() + first * stride + from,
               .x_stride = stride,
               .y_stride = stride,
               .rows = last - first,
               .channels = to - from,
               .taps = taps,
               .weight = weight.data() + from,
               .weight_stride = channels,
               .bias = bias.empty() ? nullptr : bias.data() + from,
               .state = state.data() + from * taps});
  }

  int64_t rows;
  int64_t channels;
  int64_t taps;
  Floats x;  // [rows, channels + kGap]
  Floats weight;
  Floats bias;
  Floats state;
};

void CheckAgainstDouble(const Problem& start) {
  Problem problem = start;
  problem.Run(0, problem.rows, 0, problem.channels);
  const int64_t stride = start.channels + kGap;
  const int64_t taps = start.taps;
  for (int64_t c = 0; c < start.channels; ++c) {
    Floats inputs(start.state.begin() + c * taps,
                  start.state.begin() + (c + 1) * taps);
    for (int64_t row = 0; row < start.rows; ++row) {
      inputs.push_back(start.x[row * stride + c]);
      double exact = start.bias.empty() ? 0 : start.bias[c];
      double magnitude = std::abs(exact);
      for (int64_t j = 0; j < taps; ++j) {
        const double term =
            static_cast<double>(start.weight[j * start.channels + c]) *
            inputs[inputs.size() - taps + j];
        exact += term;
        magnitude += std::abs(term);
      }
      ASSERT_NEAR(problem.x[row * stride + c], exact,
                  taps * kEpsilon * magnitude);
    }
    ASSERT_TRUE(std::equal(inputs.end() - taps, inputs.end(),
                           problem.state.begin() + c * taps));
  }
  for (int64_t row = 0; row < start.rows; ++row) {
    for (int64_t c = start.channels; c < stride; ++c) {
      ASSERT_EQ(problem.x[row * stride + c], start.x[row * stride + c]);
    }
  }
}

TEST(ShortConvKernelTest, AgreesWithDoubleForAllSizes) {
  ForEveryTarget([] {
    for (int64_t taps = 1; taps <= 6; ++taps) {
      for (const int64_t channels : {1, 3, 4, 15, 16, 17, 64, 70}) {
        for (const int64_t rows : {1, 2, 3, 9}) {
          SCOPED_TRACE(testing::Message() << taps << " taps, " << channels
                                          << " channels, " << rows << " rows");
          CheckAgainstDouble(Problem(rows, channels, taps, rows % 2 == 0));
        }
      }
    }
    CheckAgainstDouble(Problem(5, 3, kMaxConvTaps, true));
  });
}

TEST(ShortConvKernelTest, SplitsOfRowsAndChannelsChangeNoBit) {
  ForEveryTarget([] {
    for (const int64_t taps : {2, 3, 4, 5}) {
      const Problem start(20, 37, taps, true);
      Problem whole = start;
      whole.Run(0, 20, 0, 37);
      Problem split = start;
      const std::vector<int64_t> rows = {0, 1, 2, 9, 20};
      const std::vector<int64_t> channels = {0, 1, 18, 34, 37};
      for (size_t c = 1; c < channels.size(); ++c) {
        for (size_t r = 1; r < rows.size(); ++r) {
          split.Run(rows[r - 1], rows[r], channels[c - 1], channels[c]);
        }
      }
      EXPECT_EQ(split.x, whole.x);
      EXPECT_EQ(split.state, whole.state);
    }
  });
}

TEST(ShortConvKernelTest, AppliesSiluAndLeavesTheInputWhereItIs) {
  ForEveryTarget([] {
    for (const int64_t taps : {2, 3, 4, 5}) {
      const Problem start(7, 37, taps, true);
      const int64_t stride = start.channels + kGap;
      Problem plain = start;
      plain.Run(0, 7, 0, 37);
      Problem apart = start;
      Floats y(static_cast<size_t>(7 * start.channels));
      ShortConv({.x = apart.x.data(),
                 .y = y.data(),
                 .x_stride = stride,
                 .y_stride = start.channels,
                 .rows = 7,
                 .channels = start.channels,
                 .taps = taps,
                 .weight = apart.weight.data(),
                 .weight_stride = start.channels,
                 .bias = apart.bias.data(),
                 .silu = true,
                 .state = apart.state.data()});
      EXPECT_EQ(apart.x, start.x);
      EXPECT_EQ(apart.state, plain.state);
      for (int64_t row = 0; row < 7; ++row) {
        for (int64_t c = 0; c < start.channels; ++c) {
          const double sum = plain.x[row * stride + c];
          const double exact = sum / (1 + std::exp(-sum));
          ASSERT_NEAR(y[row * start.channels + c], exact,
                      4 * kEpsilon * std::abs(exact));
        }
      }
    }
  });
}

}  // namespace
}  // namespace reprise::short_conv_kernel_test
