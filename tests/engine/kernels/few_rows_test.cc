#include "engine/kernels/few_rows.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace reprise::few_rows_test {
namespace {

constexpr WeightType kTypes[] = {WeightType::kF32, WeightType::kBf16,
                                 WeightType::kInt8};
constexpr float kUntouched = 12345;

// Numbers of any type as bytes.
class Bytes {
 public:
  Bytes(WeightType type, int64_t count)
      : type_(type), bytes_(static_cast<size_t>(count * Size())) {}

  void Set(int64_t i, float number) {
    const auto bits = std::bit_cast<uint32_t>(number);
    const auto bf16 = static_cast<uint16_t>(bits >> 16);
    const auto integer = static_cast<int8_t>(number);
    const void* from = &number;
    if (type_ == WeightType::kBf16) from = &bf16;
    if (type_ == WeightType::kInt8) from = &integer;
    std::memcpy(&bytes_[static_cast<size_t>(i * Size())], from,
                static_cast<size_t>(Size()));
  }
  const std::byte* data() const { return bytes_.data(); }

 private:
  int64_t Size() const { return 4 / NumbersPerStep(type_); }

  WeightType type_;
  std::vector<std::byte> bytes_;
};

// A product, whose weights are in blocks as few_rows.h describes them.
struct Problem {
  Problem(WeightType type, int64_t rows, int64_t in, int64_t out)
      : type(type),
        rows(rows),
        in(in),
        out(out),
        numbers_x(static_cast<size_t>(rows * in)),
        numbers_w(static_cast<size_t>(in * out)) {}

  // The sums, as float, of columns `first` to `last`; the others untouched.
  std::vector<float> Computed(int64_t first, int64_t last) const {
    const int64_t per_step = NumbersPerStep(type);
    const int64_t block_in = 16 * per_step;
    const int64_t padded = (in + block_in - 1) / block_in * block_in;
    Bytes x(type, rows * in);
    for (int64_t i = 0; i < rows * in; ++i) x.Set(i, numbers_x[i]);
    Bytes w(type, padded * (out + 63) / 64 * 64);
    for (int64_t k = 0; k < in; ++k) {
      for (int64_t n = 0; n < out; ++n) {
        const int64_t step = n / 64 * padded / per_step + k / per_step;
        w.Set((step * 64 + n % 64) * per_step + k % per_step,
              numbers_w[k * out + n]);
      }
    }
    std::vector<float> sums(static_cast<size_t>(rows * out), kUntouched);
    MultiplyFewRows({.type = type, .in = in, .out = out, .weights = w.data()},
                    {.x = x.data(), .count = rows, .sums = sums.data()}, first,
                    last);
    if (type != WeightType::kInt8) return sums;
    for (float& sum : sums) {
      if (sum != kUntouched) {
        sum = static_cast<float>(std::bit_cast<int32_t>(sum));
      }
    }
    return sums;
  }

  WeightType type;
  int64_t rows;
  int64_t in;
  int64_t out;
  std::vector<float> numbers_x;  // [rows, in]
  std::vector<float> numbers_w;  // [in, out]
};

// Sums of small integers are exact in any order and type.
TEST(FewRowsTest, MultipliesTheColumnsThatItIsToldAndTouchesNoOther) {
  if (MostFewRows(WeightType::kF32) == 0) GTEST_SKIP() << "not for this CPU";
  std::mt19937 generator(1);
  std::uniform_int_distribution<int> small(-7, 7);
  std::uniform_int_distribution<int> positive(0, 7);
  for (const WeightType type : kTypes) {
    const int64_t most = MostFewRows(type);
    for (int64_t rows = 1; rows <= most; ++rows) {
      for (const auto& [in, out] : std::vector<std::pair<int64_t, int64_t>>{
               {4, 1}, {36, 70}, {512, 64}, {600, 200}, {1032, 130}}) {
        Problem problem(type, rows, in, out);
        for (float& x : problem.numbers_x) x = positive(generator);
        for (float& w : problem.numbers_w) w = small(generator);
        for (const auto& [first, last] :
             std::vector<std::pair<int64_t, int64_t>>{
                 {0, out}, {out / 32 * 16, out}, {0, out / 16 * 16}}) {
          const std::vector<float> sums = problem.Computed(first, last);
          for (int64_t i = 0; i < rows * out; ++i) {
            const int64_t n = i % out;
            float expected = 0;
            for (int64_t k = 0; k < in; ++k) {
              expected += problem.numbers_x[i / out * in + k] *
                          problem.numbers_w[k * out + n];
            }
            if (n < first || n >= last) expected = kUntouched;
            ASSERT_EQ(sums[i], expected)
                << WeightTypeName(type) << ", " << rows << " rows, " << in
                << " x " << out << ", columns " << first << " to " << last
                << ", element " << i;
          }
        }
      }
    }
  }
}

// One number after the other, and a new sum after 512, or 1024 if there are
// more than 1024: as oneDNN does.
TEST(FewRowsTest, AddsInOneDnnsOrder) {
  if (MostFewRows(WeightType::kF32) == 0) GTEST_SKIP() << "no AVX-512";
  std::mt19937 generator(2);
  std::normal_distribution<float> normal;
  for (const int64_t in : {100, 700, 1024, 1500, 3072}) {
    Problem problem(WeightType::kF32, 1, in, 64);
    for (float& x : problem.numbers_x) x = normal(generator);
    for (float& w : problem.numbers_w) w = normal(generator);
    const std::vector<float> sums = problem.Computed(0, 64);
    const int64_t chunk = in > 1024 ? 1024 : 512;
    for (int64_t n = 0; n < 64; ++n) {
      float total = 0;
      for (int64_t first = 0; first < in; first += chunk) {
        float sum = 0;
        for (int64_t k = first; k < std::min(in, first + chunk); ++k) {
          sum = std::fma(problem.numbers_x[k], problem.numbers_w[k * 64 + n],
                         sum);
        }
        total += sum;
      }
      ASSERT_EQ(sums[n], total) << in << " numbers, column " << n;
    }
  }
}

}  // namespace
}  // namespace reprise::few_rows_test
