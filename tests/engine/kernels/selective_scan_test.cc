#include "engine/kernels/selective_scan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "engine/kernels/gate_ops.h"
#include "engine/kernels/simd_ops.h"
#include "engine/model/safetensors.h"
#include "tests/engine/kernels/simd_targets.h"
#include "tests/support/golden_folder.h"

namespace reprise::selective_scan_test {
namespace {

namespace fs = std::filesystem;

using Floats = std::vector<float>;

Floats Random(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Floats values(static_cast<size_t>(n));
  for (float& value : values) value = normal(generator);
  return values;
}

Floats TimesLog2E(Floats values) {
  for (float& value : values) value *= std::numbers::log2e_v<float>;
  return values;
}

struct Problem {
  Problem(int64_t rows, int64_t channels, int64_t n)
      : rows(rows),
        channels(channels),
        n(n),
        x(Random(rows * channels, 1)),
        dt(Random(rows * channels, 2)),
        b(Random(rows * n, 3)),
        c(Random(rows * n, 4)),
        a(Random(channels * n, 5)),
        d(Random(channels, 6)),
        h(Random(channels * n, 7)) {
    Softplus(dt.data(), std::ssize(dt));
    for (float& value : a) value = -std::exp(2 * value);
    a2 = TimesLog2E(a);
  }

  // The rows [first, last) of the channels [from, to), in place of x.
  void Run(int64_t first, int64_t last, int64_t from, int64_t to) {
    SelectiveScan({.x = x.data() + first * channels + from,
                   .dt = dt.data() + first * channels + from,
                   .b = b.data() + first * n,
                   .c = c.data() + first * n,
                   .y = x.data() + first * channels + from,
                   .x_stride = channels,
                   .dt_stride = channels,
                   .bc_stride = n,
                   .y_stride = channels,
                   .rows = last - first,
                   .channels = to - from,
                   .state_size = n,
                   .a = a2.data() + from * n,
                   .d = d.data() + from,
                   .h = h.data() + from * n});
  }

  int64_t rows, channels, n;
  Floats x, dt, b, c, a, d, h;
  Floats a2;  // as the kernel takes it
};

TEST(SelectiveScanTest, AgreesWithDoubleForAllStateSizes) {
  ForEveryTarget([] {
    for (int64_t n = 1; n <= 37; ++n) {
      const Problem start(9, 5, n);
      Problem problem = start;
      problem.Run(0, 9, 0, 5);
      for (int64_t channel = 0; channel < 5; ++channel) {
        std::vector<double> h(start.h.begin() + channel * n,
                              start.h.begin() + (channel + 1) * n);
        for (int64_t row = 0; row < 9; ++row) {
          const double x = start.x[row * 5 + channel];
          const double dt = start.dt[row * 5 + channel];
          double y = start.d[channel] * x;
          double magnitude = std::abs(y);
          for (int64_t i = 0; i < n; ++i) {
            h[i] = std::exp(dt * start.a[channel * n + i]) * h[i] +
                   dt * x * start.b[row * n + i];
            y += start.c[row * n + i] * h[i];
            magnitude += std::abs(start.c[row * n + i] * h[i]);
          }
          // n sums, and nine steps of a few roundings each.
          ASSERT_NEAR(problem.x[row * 5 + channel], y,
                      (n + 40) * 6e-8 * (magnitude + 1));
        }
        for (int64_t i = 0; i < n; ++i) {
          ASSERT_NEAR(problem.h[channel * n + i], h[i],
                      40 * 6e-8 * (1 + std::abs(h[i])));
        }
      }
    }
  });
}

TEST(SelectiveScanTest, SplitsOfRowsAndChannelsChangeNoBit) {
  ForEveryTarget([] {
    for (const int64_t n : {7, 16}) {
      Problem whole(20, 9, n);
      Problem split = whole;
      whole.Run(0, 20, 0, 9);
      for (const auto& [from, to] : {std::pair{0, 4}, {4, 5}, {5, 9}}) {
        split.Run(0, 1, from, to);
        split.Run(1, 13, from, to);
        split.Run(13, 20, from, to);
      }
      EXPECT_EQ(split.x, whole.x);
      EXPECT_EQ(split.h, whole.h);
    }
  });
}

// Operator data computed elsewhere in float64, read in place.
class SelectiveScanGoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(SelectiveScanGoldenTest, GivesTheStoredOutputsAndState) {
  const fs::path path = GoldenFolder() / "ops" / (GetParam() + ".safetensors");
  if (!fs::exists(path)) GTEST_SKIP() << path << " is absent";
  const auto file = Checkpoint::OpenFile(path);
  ASSERT_TRUE(file.ok()) << file.status();
  std::map<std::string, Floats> data;
  for (const auto& [name, tensor] : file->tensors()) {
    data[name].resize(static_cast<size_t>(tensor.elements));
    ASSERT_TRUE(file->ReadF32(name, data[name]).ok());
  }
  const std::vector<int64_t>& shape = file->Find("u")->shape;
  const int64_t batch = shape[0], rows = shape[1], channels = shape[2];
  const int64_t n = file->Find("A")->shape[1];
  const Floats a = TimesLog2E(data["A"]);
  ForEveryTarget([&] {
    Floats dt = data["dt"];
    for (int64_t row = 0; row < batch * rows; ++row) {
      AddInto(data["dt_bias"].data(), channels, dt.data() + row * channels);
    }
    Softplus(dt.data(), std::ssize(dt));
    Floats y(data["u"].size());
    Floats h(static_cast<size_t>(batch * channels * n));
    for (int64_t i = 0; i < batch; ++i) {
      SelectiveScan({.x = data["u"].data() + i * rows * channels,
                     .dt = dt.data() + i * rows * channels,
                     .b = data["B"].data() + i * rows * n,
                     .c = data["C"].data() + i * rows * n,
                     .y = y.data() + i * rows * channels,
                     .x_stride = channels,
                     .dt_stride = channels,
                     .bc_stride = n,
                     .y_stride = channels,
                     .rows = rows,
                     .channels = channels,
                     .state_size = n,
                     .a = a.data(),
                     .d = data["D"].data(),
                     .h = h.data() + i * channels * n});
    }
    SiluMultiply(data["z"].data(), y.data(), std::ssize(y), y.data());
    // Some tens of roundings, of numbers of 20 on the way and of what they come
    // to.
    const auto expect_near = [](float value, float expected, size_t i) {
      ASSERT_NEAR(value, expected, 1e-6 * (20 + std::abs(expected))) << i;
    };
    for (size_t i = 0; i < y.size(); ++i) expect_near(y[i], data["y"][i], i);
    for (size_t i = 0; i < h.size(); ++i) expect_near(h[i], data["ht"][i], i);
  });
}

INSTANTIATE_TEST_SUITE_P(Ops, SelectiveScanGoldenTest,
                         testing::Values("selective_scan",
                                         "selective_scan_small"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace reprise::selective_scan_test
