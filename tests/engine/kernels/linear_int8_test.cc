// 8-bit weights, bit by bit: integers as plain loops compute them.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "engine/base/parallel.h"
#include "engine/kernels/linear.h"

namespace reprise::linear_int8_test {
namespace {

using Floats = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// One row in 8 bits, as quantize.h defines it.
struct Quantised {
  explicit Quantised(std::span<const float> x) {
    float largest = 0;
    for (const float v : x) largest = std::max(largest, std::abs(v));
    const float inverse = std::min(127 / largest, 0x1p126F);
    scale = 1 / inverse;
    for (const float v : x) {
      numbers.push_back(static_cast<int>(std::nearbyint(v * inverse)));
    }
  }
  std::vector<int> numbers;
  float scale = 0;
};

struct Problem {
  int64_t rows;
  int64_t in;
  int64_t out;
  Floats x;       // [PaddedRows(rows), in]
  Floats weight;  // [out, in]
  Floats bias;    // [out], or empty

  std::span<const float> Row(const Floats& m, int64_t row) const {
    return std::span(m).subspan(static_cast<size_t>(row * in),
                                static_cast<size_t>(in));
  }

  // [rows, out]
  Floats Computed() const {
    const auto linear =
        Linear::Create({weight.data(), out, in}, bias,
                       {.type = WeightType::kInt8, .max_rows = rows});
    EXPECT_TRUE(linear.ok()) << linear.status();
    Floats y(static_cast<size_t>(PaddedRows(rows) * out));
    LinearScratch scratch;
    linear->Apply({x.data(), rows, in}, {y.data(), rows, out}, scratch);
    y.resize(static_cast<size_t>(rows * out));
    return y;
  }

  Floats Expected() const {
    Floats y;
    std::vector<Quantised> columns;
    for (int64_t col = 0; col < out; ++col) {
      columns.emplace_back(Row(weight, col));
    }
    for (int64_t row = 0; row < rows; ++row) {
      const Quantised q(Row(x, row));
      for (size_t col = 0; col < columns.size(); ++col) {
        int64_t sum = 0;
        for (size_t k = 0; k < q.numbers.size(); ++k) {
          sum += q.numbers[k] * columns[col].numbers[k];
        }
        const float scaled = static_cast<float>(sum) * columns[col].scale;
        y.push_back(std::fma(scaled, q.scale, bias.empty() ? 0.0F : bias[col]));
      }
    }
    return y;
  }
};

Floats Random(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Floats values(static_cast<size_t>(n));
  for (float& value : values) value = normal(generator);
  return values;
}

Problem RandomProblem(int64_t rows, int64_t in, int64_t out, bool has_bias) {
  return {.rows = rows,
          .in = in,
          .out = out,
          .x = Random(PaddedRows(rows) * in, 1),
          .weight = Random(out * in, 2),
          .bias = has_bias ? Random(out, 3) : Floats()};
}

void ExpectSameBits(const Floats& actual, const Floats& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]),
              std::bit_cast<uint32_t>(expected[i]))
        << i << ": " << actual[i] << ", not " << expected[i];
  }
}

TEST(LinearInt8Test, HasTheBitsOfPlainLoopsOverIntegers) {
  SetNumThreads(1);
  for (const auto& [in, out] : std::vector<std::pair<int64_t, int64_t>>{
           {50, 77}, {512, 192}, {256, 1}, {1, 33}, {1000, 7}, {300, 256}}) {
    for (const int64_t rows : {1, 2, 3, 5, 32, 33, 70, 130}) {
      SCOPED_TRACE(testing::Message() << rows << "x" << in << "x" << out);
      const Problem problem = RandomProblem(rows, in, out, in % 3 != 0);
      ExpectSameBits(problem.Computed(), problem.Expected());
    }
  }
}

// Every product has the largest magnitude there is, which a sum of two in 16
// bits could not hold, and the whole sum comes near the limit of 32 bits.
TEST(LinearInt8Test, LargestNumbersDoNotSaturate) {
  SetNumThreads(1);
  for (const int64_t in : {int64_t{2}, int64_t{255}, kMaxInt8Inputs}) {
    for (const float sign : {1.0F, -1.0F}) {
      SCOPED_TRACE(testing::Message() << in << " inputs, sign " << sign);
      Problem problem = RandomProblem(4, in, 3, /*has_bias=*/false);
      std::fill(problem.x.begin(), problem.x.end(), 2.0F);
      std::fill_n(problem.x.begin(), in, -2.0F);
      std::fill(problem.weight.begin(), problem.weight.end(), sign * 3.0F);
      ExpectSameBits(problem.Computed(), problem.Expected());
    }
  }
}

TEST(LinearInt8Test, RowsOfAnySizeAndOfZeros) {
  SetNumThreads(1);
  Problem problem = RandomProblem(8, 40, 9, /*has_bias=*/true);
  const float factors[] = {0,        -0.0F, 0x1p-149F, 0x1p-130F,
                           0x1p-60F, 1,     0x1p60F,   0x1p120F};
  for (size_t row = 0; row < std::size(factors); ++row) {
    for (size_t k = 0; k < 40; ++k) problem.x[row * 40 + k] *= factors[row];
  }
  std::fill_n(problem.weight.begin(), 40, 0.0F);
  for (size_t k = 40; k < 80; ++k) problem.weight[k] *= 0x1p-120F;
  const Floats y = problem.Computed();
  ExpectSameBits(y, problem.Expected());
  for (size_t col = 0; col < 9; ++col) EXPECT_EQ(y[col], problem.bias[col]);
}

TEST(LinearInt8Test, NumbersThatAreNotFiniteShowInTheirRowAlone) {
  SetNumThreads(1);
  for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
    for (const int64_t place : {0, 17, 49}) {
      Problem problem = RandomProblem(5, 50, 31, /*has_bias=*/true);
      const Floats before = problem.Computed();
      problem.x[static_cast<size_t>(2 * 50 + place)] = bad;
      const Floats y = problem.Computed();
      for (size_t i = 0; i < y.size(); ++i) {
        if (i / 31 == 2) {
          EXPECT_TRUE(std::isnan(y[i])) << bad << " at " << place;
        } else {
          EXPECT_EQ(y[i], before[i]);
        }
      }
    }
  }
}

TEST(LinearInt8Test, IsAQuarterOfF32) {
  SetNumThreads(1);
  const Floats weight = Random(512 * 768, 4);
  const auto bytes = [&](WeightType type) {
    const auto linear = Linear::Create({weight.data(), 512, 768}, {},
                                       {.type = type, .max_rows = 4});
    return linear.ok() ? linear->packed_bytes() : 0;
  };
  EXPECT_GT(bytes(WeightType::kInt8), 512 * 768);
  // Beside the weights two numbers for each output.
  EXPECT_LE(bytes(WeightType::kInt8),
            bytes(WeightType::kF32) / 4 + 512 * 2 * 4);
}

}  // namespace
}  // namespace reprise::linear_int8_test
