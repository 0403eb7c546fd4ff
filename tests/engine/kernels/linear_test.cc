#include "engine/kernels/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "engine/base/bytes.h"
#include "engine/base/parallel.h"
#include "engine/kernels/few_rows.h"
#include "tests/support/teams.h"

namespace reprise::linear_test {
namespace {

std::vector<float> RandomFloats(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

// Round to nearest even, written apart from the code under test.
float RoundToBf16(float value) {
  const float step = std::ldexp(1.0f, std::ilogb(value) - 7);
  return value == 0 ? value : std::nearbyint(value / step) * step;
}

// A linear layer's inputs and, by plain loops in double, its results.
struct Problem {
  Problem(WeightType type, int64_t rows, int64_t in, int64_t out, bool has_bias)
      : type(type), rows(rows), in(in), out(out) {
    x = RandomFloats(rows * in, 1);
    weight = RandomFloats(out * in, 2);
    if (has_bias) bias = RandomFloats(out, 3);
    x.resize(PaddedRows(rows) * in, std::numeric_limits<float>::quiet_NaN());
  }

  absl::StatusOr<Linear> Make(int64_t max_rows) const {
    return Linear::Create(View(weight, out, in), bias,
                          {.type = type, .max_rows = max_rows});
  }

  // Results of `count` rows from row `first`.
  std::vector<float> Apply(const Linear& linear, int64_t first, int64_t count,
                           LinearScratch& scratch) const {
    // The rows of the padding are NaN, so that a kernel that mixes rows shows.
    std::vector<float> input(PaddedRows(count) * in,
                             std::numeric_limits<float>::quiet_NaN());
    std::copy_n(x.begin() + first * in, count * in, input.begin());
    std::vector<float> output(PaddedRows(count) * out);
    linear.Apply(View(input, count, in), {output.data(), count, out}, scratch);
    output.resize(count * out);
    return output;
  }

  // The exact result of one element, and how far off it may be.
  //
  // A sum of K rounded terms in any order errs by at most K eps sum|terms|
  // (Higham 2002, section 4.2), K + 2 with the bias and the last rounding.
  // Products of bf16 are exact in f32. With int8 each factor errs by half of
  // its row's step, largest / 127, so a product a b by
  // |a| step_b / 2 + |b| step_a / 2 + step_a step_b / 4; few roundings follow.
  struct Exact {
    double value = 0;
    double bound = 0;
  };
  Exact Reference(int64_t row, int64_t col) const {
    const float* const a_row = &x[row * in];
    const float* const b_row = &weight[col * in];
    const double half_a = Largest(a_row) / 127 / 2;
    const double half_b = Largest(b_row) / 127 / 2;
    double value = bias.empty() ? 0 : bias[col];
    double magnitude = std::abs(value);
    double quantised = 0;
    for (int64_t k = 0; k < in; ++k) {
      const double a = a_row[k];
      const double b = b_row[k];
      const double term = type == WeightType::kBf16
                              ? double{RoundToBf16(a)} * RoundToBf16(b)
                              : a * b;
      value += term;
      magnitude += std::abs(term);
      quantised +=
          std::abs(a) * half_b + std::abs(b) * half_a + half_a * half_b;
    }
    constexpr double kEpsilon = std::numeric_limits<float>::epsilon();
    if (type == WeightType::kInt8) {
      return {value, quantised + 4 * kEpsilon * (magnitude + quantised)};
    }
    return {value, (in + 2.0) * kEpsilon * magnitude};
  }
  double Largest(const float* values) const {
    return std::abs(*std::max_element(
        values, values + in,
        [](float a, float b) { return std::abs(a) < std::abs(b); }));
  }

  static MatrixView<const float> View(const std::vector<float>& v, int64_t rows,
                                      int64_t cols) {
    return {v.data(), rows, cols};
  }

  WeightType type;
  int64_t rows;
  int64_t in;
  int64_t out;
  std::vector<float> x;       // [PaddedRows(rows), in]
  std::vector<float> weight;  // [out, in]
  std::vector<float> bias;    // [out] or empty
};

bool SameBits(const float* a, const float* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) {
      return false;
    }
  }
  return true;
}

constexpr WeightType kPackedTypes[] = {WeightType::kF32, WeightType::kBf16,
                                       WeightType::kInt8};

struct Shape {
  WeightType type;
  int64_t in;
  int64_t out;
  bool has_bias;
};

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (const WeightType type : kPackedTypes) {
    // On AMX the first three get another kernel at 1 to 3 rows, and those of
    // few columns up to 32 rows.
    for (const auto& [in, out] :
         std::vector<std::pair<int64_t, int64_t>>{{50, 77},
                                                  {512, 192},
                                                  {64, 160},
                                                  {256, 8},
                                                  {256, 1},
                                                  {1, 33},
                                                  {7, 300},
                                                  {32, 32},
                                                  {128, 512},
                                                  {1000, 7},
                                                  {300, 256}}) {
      shapes.push_back({type, in, out, /*has_bias=*/in % 3 != 0});
    }
    shapes.push_back({type, 64, 160, /*has_bias=*/false});
    shapes.push_back({type, 512, 192, /*has_bias=*/false});
    // Sums of several chunks, and columns of several blocks.
    shapes.push_back({type, 768, 200, /*has_bias=*/true});
    shapes.push_back({type, 3072, 136, /*has_bias=*/true});
    shapes.push_back({type, 1100, 80, /*has_bias=*/false});
    shapes.push_back({type, 2052, 65, /*has_bias=*/true});
  }
  return shapes;
}

class LinearTest : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override { SetNumThreads(1); }
  void TearDown() override { SetNumThreads(1); }

  static constexpr int64_t kRows = 200;
  Problem problem_{GetParam().type, kRows, GetParam().in, GetParam().out,
                   GetParam().has_bias};
  LinearScratch scratch_;
};

TEST_P(LinearTest, AgreesWithDoubleReference) {
  const auto linear = problem_.Make(kRows);
  ASSERT_TRUE(linear.ok()) << linear.status();
  EXPECT_EQ(linear->in(), problem_.in);
  EXPECT_EQ(linear->out(), problem_.out);
  const int64_t weights = problem_.in * problem_.out;
  EXPECT_GE(linear->packed_bytes(),
            weights * (GetParam().type == WeightType::kInt8 ? 1 : 2));
  for (const int64_t count : {1, 3, 5, 70, 200}) {
    const auto y = problem_.Apply(*linear, 0, count, scratch_);
    for (int64_t row = 0; row < count; row += 1 + count / 7) {
      for (int64_t col = 0; col < problem_.out; ++col) {
        const auto exact = problem_.Reference(row, col);
        ASSERT_NEAR(y[row * problem_.out + col], exact.value, exact.bound)
            << count << " rows, row " << row << ", column " << col;
      }
    }
  }
}

TEST_P(LinearTest, RowHasTheSameBitsInAnyCompany) {
  const auto linear = problem_.Make(kRows);
  ASSERT_TRUE(linear.ok()) << linear.status();
  std::vector<float> alone;
  for (int64_t row = 0; row < kRows; ++row) {
    const auto y = problem_.Apply(*linear, row, 1, scratch_);
    alone.insert(alone.end(), y.begin(), y.end());
  }
  for (int64_t count = 1; count <= kRows; ++count) {
    for (const int64_t first : {int64_t{0}, (kRows - count) / 2}) {
      const auto y = problem_.Apply(*linear, first, count, scratch_);
      ASSERT_TRUE(SameBits(y.data(), alone.data() + first * problem_.out,
                           std::ssize(y)))
          << count << " rows from row " << first;
    }
  }
}

TEST_P(LinearTest, RowHasTheSameBitsForAnyThreadsAndLimit) {
  const auto linear = problem_.Make(kRows);
  ASSERT_TRUE(linear.ok()) << linear.status();
  const auto expected = problem_.Apply(*linear, 0, kRows, scratch_);
  for (const int threads : {1, 2, 3}) {
    SetNumThreads(TeamOf(threads));
    for (const int64_t limit : {1, 40, 200, 512}) {
      const auto other = problem_.Make(limit);
      ASSERT_TRUE(other.ok()) << other.status();
      for (const int64_t count : {1, 2, 17, 64, 200}) {
        if (count > limit) continue;
        const auto y = problem_.Apply(*other, 0, count, scratch_);
        EXPECT_TRUE(SameBits(y.data(), expected.data(), std::ssize(y)))
            << count << " of " << limit << " rows, " << threads << " threads";
      }
    }
  }
}

TEST_P(LinearTest, WritesNoFurtherThanPaddedRows) {
  const auto linear = problem_.Make(kRows);
  ASSERT_TRUE(linear.ok()) << linear.status();
  for (const int64_t count : {1, 2, 3, 4, 5, 13, 64, 65, 200}) {
    const int64_t room = PaddedRows(count) * problem_.out;
    std::vector<float> y(room + 64, 42.0f);
    linear->Apply({problem_.x.data(), count, problem_.in},
                  {y.data(), count, problem_.out}, scratch_);
    for (size_t i = room; i < y.size(); ++i) ASSERT_EQ(y[i], 42.0f) << i;
  }
}

std::string ShapeName(const testing::TestParamInfo<Shape>& info) {
  const Shape& shape = info.param;
  return std::string(WeightTypeName(shape.type)) + "_" +
         std::to_string(shape.in) + "x" + std::to_string(shape.out) +
         (shape.has_bias ? "_bias" : "");
}

INSTANTIATE_TEST_SUITE_P(Shapes, LinearTest, testing::ValuesIn(Shapes()),
                         ShapeName);

// Denormal numbers, which instructions of bf16 take for zero, and products of
// which the sum is one.
TEST(LinearTinyNumbersTest, HaveTheSameBitsInAnyCompany) {
  SetNumThreads(1);
  std::mt19937 generator(4);
  std::uniform_int_distribution<int> exponent(-140, 0);
  for (const WeightType type : kPackedTypes) {
    Problem problem(type, 20, 256, 80, /*has_bias=*/false);
    for (auto* numbers : {&problem.x, &problem.weight}) {
      for (float& number : *numbers) {
        number = std::ldexp(number, exponent(generator));
      }
    }
    const auto linear = problem.Make(/*max_rows=*/20);
    ASSERT_TRUE(linear.ok()) << linear.status();
    LinearScratch scratch;
    const auto all = problem.Apply(*linear, 0, 20, scratch);
    for (int64_t row = 0; row < 20; ++row) {
      const auto alone = problem.Apply(*linear, row, 1, scratch);
      EXPECT_TRUE(SameBits(alone.data(), &all[row * 80], 80))
          << WeightTypeName(type) << ", row " << row;
    }
  }
}

TEST(LinearThreadsTest, AppliesOnSeveralThreadsAtOnce) {
  SetNumThreads(1);
  const Problem problem(WeightType::kF32, 64, 96, 80, /*has_bias=*/true);
  const auto linear = problem.Make(64);
  ASSERT_TRUE(linear.ok()) << linear.status();
  LinearScratch scratch;
  const auto expected = problem.Apply(*linear, 0, 64, scratch);
  std::vector<std::vector<float>> results(4);
  {
    std::vector<std::jthread> threads;
    for (auto& result : results) {
      threads.emplace_back([&] {
        LinearScratch own;
        for (int i = 0; i < 50; ++i) {
          result = problem.Apply(*linear, 0, 64, own);
        }
      });
    }
  }
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

// Where it has its bits, the code for few rows is used: with AVX-512, for
// matrices whose layout is in blocks of 64 columns. Where oneDNN has no exact
// one, all rows are our own.
TEST(LinearOwnRowsTest, AreNotOneDnns) {
  SetNumThreads(1);
  const std::string isa = CpuIsaName();
  for (const WeightType type : kPackedTypes) {
    const auto linear =
        Problem(type, 1, 768, 200, /*has_bias=*/true).Make(/*max_rows=*/16);
    ASSERT_TRUE(linear.ok()) << linear.status();
    bool same_bits = isa.starts_with("avx512_core");
    const bool amx = isa == "avx512_core_amx";
    if (type == WeightType::kBf16) same_bits = isa == "avx512_core_bf16" || amx;
    if (type == WeightType::kInt8) same_bits &= isa != "avx512_core";
    EXPECT_EQ(linear->own_rows(), same_bits ? MostFewRows(type) : 16)
        << WeightTypeName(type) << " on " << isa;
    if (!amx || type == WeightType::kF32) continue;
    // All rows of whole tiles, and of others those that few_rows.h has.
    const Problem many(type, 1, 768, 200, /*has_bias=*/true);
    EXPECT_GE(many.Make(/*max_rows=*/200)->own_rows(), 200);
    const Problem uneven(type, 1, 776, 200, /*has_bias=*/true);
    const int64_t few = type == WeightType::kInt8 ? MostFewRows(type) : 0;
    EXPECT_EQ(uneven.Make(/*max_rows=*/200)->own_rows(), few);
  }
}

// Of different types and sizes, in the shares of any number of threads, with
// few rows and with many.
TEST(LinearApplyAllTest, GivesTheBitsOfOneAfterTheOther) {
  for (const int threads : {1, 2, 3}) {
    SetNumThreads(TeamOf(threads));
    for (const int64_t rows : {1, 4, 8, 9, 64, 65}) {
      std::vector<Problem> problems;
      for (const WeightType type : kPackedTypes) {
        problems.emplace_back(type, rows, 600, 200, /*has_bias=*/true);
        problems.emplace_back(type, rows, 64, 777, /*has_bias=*/false);
      }
      std::vector<Linear> linears;
      std::vector<std::vector<float>> results;
      std::vector<Linear::Call> calls;
      LinearScratch scratch;
      for (const Problem& problem : problems) {
        auto linear = problem.Make(/*max_rows=*/128);
        ASSERT_TRUE(linear.ok()) << linear.status();
        linears.push_back(*std::move(linear));
        results.emplace_back(PaddedRows(rows) * problem.out);
      }
      for (size_t i = 0; i < problems.size(); ++i) {
        calls.push_back({&linears[i],
                         {problems[i].x.data(), rows, problems[i].in},
                         {results[i].data(), rows, problems[i].out}});
      }
      Linear::ApplyAll(calls, scratch);
      for (size_t i = 0; i < problems.size(); ++i) {
        const auto expected = problems[i].Apply(linears[i], 0, rows, scratch);
        EXPECT_TRUE(
            SameBits(results[i].data(), expected.data(), std::ssize(expected)))
            << rows << " rows, " << threads << " threads, matrix " << i;
      }
    }
  }
  SetNumThreads(1);
}

TEST(LinearWeightTest, ReadsWeightsWithGapsBetweenRows) {
  SetNumThreads(1);
  const int64_t in = 20;
  const int64_t out = 30;
  const auto wide = RandomFloats(out * 33, 5);
  std::vector<float> dense;
  for (int64_t row = 0; row < out; ++row) {
    dense.insert(dense.end(), wide.begin() + row * 33,
                 wide.begin() + row * 33 + in);
  }
  for (const WeightType type : kPackedTypes) {
    const Linear::Options options = {.type = type, .max_rows = 4};
    const auto gaps = Linear::Create({wide.data(), out, in, 33}, {}, options);
    const auto plain = Linear::Create({dense.data(), out, in}, {}, options);
    ASSERT_TRUE(gaps.ok() && plain.ok());
    const Problem problem(type, 4, in, out, /*has_bias=*/false);
    LinearScratch scratch;
    EXPECT_EQ(problem.Apply(*gaps, 0, 4, scratch),
              problem.Apply(*plain, 0, 4, scratch));
  }
}

TEST(PaddedRowsTest, RoundsUpToFewSizes) {
  EXPECT_EQ(PaddedRows(1), 4);  // the room that 1 to 3 rows may need
  EXPECT_EQ(PaddedRows(4), 4);
  EXPECT_EQ(PaddedRows(5), 6);
  EXPECT_EQ(PaddedRows(49), 64);
  EXPECT_EQ(PaddedRows(64), 64);
  EXPECT_EQ(PaddedRows(65), 128);
  EXPECT_EQ(PaddedRows(512), 512);
}

TEST(ResolveWeightTypeTest, AutoLosesNoAccuracyUnasked) {
  EXPECT_EQ(ResolveWeightType(WeightType::kAuto), WeightType::kBf16);
  for (const WeightType type : kPackedTypes) {
    EXPECT_EQ(ResolveWeightType(type), type);
  }
}

}  // namespace
}  // namespace reprise::linear_test
