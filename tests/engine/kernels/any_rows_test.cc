#include "engine/kernels/any_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "tests/engine/kernels/simd_targets.h"

namespace reprise::any_rows_test {
namespace {

using Floats = std::vector<float>;

constexpr float kUntouched = 42;

struct Problem {
  Problem(WeightType type, int64_t rows, int64_t in, int64_t out)
      : type(type), rows(rows), in(in), out(out) {
    std::mt19937 random(static_cast<uint32_t>(rows * in + out));
    const float scale = type == WeightType::kInt8 ? 1 : 0.01F;
    const auto fill = [&](int64_t count, Floats& numbers) {
      for (int64_t i = 0; i < count; ++i) {
        const int integer = static_cast<int>(random() % 255) - 127;
        numbers.push_back(Held(scale * static_cast<float>(integer)));
      }
    };
    fill(rows * in, x);
    fill(in * out, w);
  }

  // The nearest number below that the type holds.
  float Held(float number) const {
    const uint32_t mask = type == WeightType::kBf16 ? 0xffff0000 : 0xffffffff;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(number) & mask);
  }

  size_t Size() const {
    return type == WeightType::kF32 ? 4 : type == WeightType::kBf16 ? 2 : 1;
  }

  // A number as bytes of the type, at the place of number `at`.
  void Put(float number, int64_t at, std::vector<std::byte>& bytes) const {
    const auto bits = std::bit_cast<uint32_t>(number);
    const auto half = static_cast<uint16_t>(bits >> 16);
    const auto integer = static_cast<int8_t>(number);
    const void* from = &bits;
    if (type == WeightType::kBf16) from = &half;
    if (type == WeightType::kInt8) from = &integer;
    std::memcpy(bytes.data() + static_cast<size_t>(at) * Size(), from, Size());
  }

  // The layout, told apart from the code that packs it.
  std::vector<std::byte> Blocks() const {
    const int64_t padded = (in + 15) / 16 * 16;
    const int64_t blocks = (out + 15) / 16;
    std::vector<std::byte> bytes(static_cast<size_t>(blocks * padded * 16) *
                                 Size());
    for (int64_t i = 0; i < in; ++i) {
      for (int64_t col = 0; col < out; ++col) {
        Put(w[static_cast<size_t>(i * out + col)],
            (col / 16 * padded + i) * 16 + col % 16, bytes);
      }
    }
    return bytes;
  }

  // Columns first to last, in the order that any_rows.h tells; the others
  // untouched. An integer is the bits of its f32.
  Floats Expected(int64_t first, int64_t last, bool fused) const {
    Floats y(static_cast<size_t>(rows * out), kUntouched);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t col = first; col < last; ++col) {
        float sum = 0;
        int32_t integer = 0;
        for (int64_t i = 0; i < in; i += kChunkNumbers) {
          float chunk = 0;
          for (int64_t k = i; k < std::min(in, i + kChunkNumbers); ++k) {
            const float a = x[static_cast<size_t>(row * in + k)];
            const float b = w[static_cast<size_t>(k * out + col)];
            const float product = a * b;
            chunk = fused ? std::fma(a, b, chunk) : chunk + product;
            integer += static_cast<int32_t>(product);
          }
          sum = i == 0 ? chunk : sum + chunk;
        }
        y[static_cast<size_t>(row * out + col)] =
            type == WeightType::kInt8 ? std::bit_cast<float>(integer) : sum;
      }
    }
    return y;
  }

  Floats Computed(int64_t first, int64_t last) const {
    const std::vector<std::byte> blocks = Blocks();
    std::vector<std::byte> source(x.size() * Size());
    for (size_t i = 0; i < x.size(); ++i) {
      Put(x[i], static_cast<int64_t>(i), source);
    }
    Floats y(static_cast<size_t>(rows * out), kUntouched);
    MultiplyAnyRows({type, in, out, blocks.data()},
                    {source.data(), rows, y.data()}, first, last);
    return y;
  }

  WeightType type;
  int64_t rows;
  int64_t in;
  int64_t out;
  Floats x;  // [rows, in]
  Floats w;  // [in, out]
};

bool SameBits(const Floats& a, const Floats& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Bit for bit, for numbers of rows and columns that fill registers and that do
// not, in one chunk and in several.
TEST(AnyRowsTest, AddsInItsOrderAndTouchesNoOtherColumn) {
  ForEveryTarget([] {
    const bool fused = hwy::SupportedTargets() != HWY_SCALAR;
    for (const WeightType type :
         {WeightType::kF32, WeightType::kBf16, WeightType::kInt8}) {
      for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 12, 13, 31}) {
        for (const int64_t in : {1, 37, 256, 300, 1000}) {
          const int64_t out = 170;
          const Problem problem(type, rows, in, out);
          for (const auto& [first, last] :
               std::vector<std::pair<int64_t, int64_t>>{
                   {0, 170}, {16, 144}, {64, 170}, {32, 48}, {160, 163}}) {
            EXPECT_TRUE(SameBits(problem.Computed(first, last),
                                 problem.Expected(first, last, fused)))
                << WeightTypeName(type) << ", " << rows << " rows of " << in
                << ", columns " << first << " to " << last;
          }
        }
      }
    }
  });
}

// The largest sums there are stay exact.
TEST(AnyRowsTest, SumsOfIntegersAreExactToTheLargest) {
  ForEveryTarget([] {
    for (const float sign : {1.0F, -1.0F}) {
      Problem problem(WeightType::kInt8, 3, kMaxInt8Inputs, 2);
      std::fill(problem.x.begin(), problem.x.end(), sign * 127);
      std::fill(problem.w.begin(), problem.w.end(), 127.0F);
      const Floats y = problem.Computed(0, 2);
      const auto largest =
          static_cast<int32_t>(sign * 127 * 127 * float{kMaxInt8Inputs});
      for (const float sum : y) EXPECT_EQ(std::bit_cast<int32_t>(sum), largest);
    }
  });
}

}  // namespace
}  // namespace reprise::any_rows_test
