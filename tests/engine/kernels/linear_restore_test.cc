// Linears that are packed by rows, kept, and restored.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "engine/base/parallel.h"
#include "engine/kernels/linear.h"
#include "tests/support/teams.h"

namespace reprise::linear_restore_test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRows = 5;

std::vector<float> RandomFloats(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(generator);
  return values;
}

// The bits of kRows rows.
std::vector<float> Apply(const Linear& linear) {
  LinearScratch scratch;
  linear.Reserve(scratch);
  std::vector<float> x = RandomFloats(PaddedRows(kRows) * linear.in(), 9);
  std::vector<float> y(static_cast<size_t>(PaddedRows(kRows) * linear.out()));
  linear.Apply({x.data(), kRows, linear.in()}, {y.data(), kRows, linear.out()},
               scratch);
  y.resize(static_cast<size_t>(kRows * linear.out()));
  return y;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class LinearRestoreTest
    : public ::testing::TestWithParam<std::tuple<WeightType, bool>> {
 protected:
  void SetUp() override { SetNumThreads(TeamOf(2)); }
  WeightType type() const { return std::get<0>(GetParam()); }
  bool biased() const { return std::get<1>(GetParam()); }
  Linear::Options options() const { return {.type = type(), .max_rows = 64}; }

  Linear Make(const LinearShape& shape) {
    weight_ = RandomFloats(shape.in * shape.out, 2);
    if (biased()) bias_ = RandomFloats(shape.out, 3);
    auto linear =
        Linear::Create({weight_.data(), shape.out, shape.in}, bias_, options());
    EXPECT_TRUE(linear.ok()) << linear.status();
    return *std::move(linear);
  }
  absl::StatusOr<Linear> Restore(const LinearShape& shape,
                                 const StoredLinear& stored,
                                 std::span<const std::byte> weights) {
    return Linear::Restore(
        shape, biased(), options(), stored, [&](std::span<std::byte> to) {
          EXPECT_EQ(to.size(), weights.size());
          std::copy(weights.begin(), weights.end(), to.begin());
          return absl::OkStatus();
        });
  }

  std::vector<float> weight_;
  std::vector<float> bias_;
};

TEST_P(LinearRestoreTest, PackingRowByRowGivesTheBitsOfPackingAtOnce) {
  // More than are read at a time, and a last piece that is smaller.
  const LinearShape shape{.in = 768, .out = 3001};
  const Linear whole = Make(shape);
  PackBuffer buffer;
  int64_t next = 0;
  const auto rows = [&](int64_t first, int64_t count, float* numbers) {
    EXPECT_EQ(first, next);
    next += count;
    std::copy_n(weight_.begin() + first * shape.in, count * shape.in, numbers);
    return absl::OkStatus();
  };
  const auto pieces = Linear::Pack(shape, rows, bias_, options(), buffer);
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  EXPECT_EQ(next, shape.out);
  EXPECT_TRUE(std::ranges::equal(pieces->weights(), whole.weights()));
  EXPECT_EQ(pieces->Store().others, whole.Store().others);
  EXPECT_TRUE(SameBits(Apply(*pieces), Apply(whole)));
}

TEST_P(LinearRestoreTest, FailsAsItsRowsDo) {
  PackBuffer buffer;
  const auto rows = [](int64_t, int64_t, float*) {
    return absl::DataLossError("no rows");
  };
  const auto linear =
      Linear::Pack({.in = 64, .out = 64}, rows, {}, options(), buffer);
  EXPECT_EQ(linear.status(), absl::DataLossError("no rows"));
}

TEST_P(LinearRestoreTest, ARestoredOneComputesTheSameBits) {
  for (const LinearShape& shape : {LinearShape{64, 64}, LinearShape{100, 37},
                                   LinearShape{768, 2304}, LinearShape{8, 1}}) {
    const Linear made = Make(shape);
    const StoredLinear stored = made.Store();
    ASSERT_FALSE(stored.layout.empty());
    EXPECT_EQ(stored.weight_bytes, made.weights().size());
    const auto restored = Restore(shape, stored, made.weights());
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_TRUE(SameBits(Apply(*restored), Apply(made))) << shape.out;
    EXPECT_EQ(restored->packed_bytes(), made.packed_bytes());
  }
}

TEST_P(LinearRestoreTest, RefusesAnotherLayoutAndOtherSizesUnread) {
  const LinearShape shape{.in = 128, .out = 96};
  const Linear made = Make(shape);
  const auto refused = [&](const LinearShape& as, StoredLinear stored) {
    return Linear::Restore(as, biased(), options(), stored,
                           [](std::span<std::byte>) {
                             ADD_FAILURE() << "read";
                             return absl::OkStatus();
                           })
        .status();
  };
  StoredLinear other = made.Store();
  other.layout += " ";
  EXPECT_EQ(refused(shape, other).code(),
            absl::StatusCode::kFailedPrecondition);
  other.layout.clear();
  EXPECT_EQ(refused(shape, other).code(),
            absl::StatusCode::kFailedPrecondition);
  other = made.Store();
  other.weight_bytes -= 1;
  EXPECT_THAT(std::string(refused(shape, other).message()),
              HasSubstr("this process needs"));
  other = made.Store();
  other.others += "1234";
  EXPECT_EQ(refused(shape, other).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused({.in = 96, .out = 128}, made.Store()).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_P(LinearRestoreTest, FailsAsTheReadingDoes) {
  const LinearShape shape{.in = 128, .out = 96};
  const Linear made = Make(shape);
  const auto restored = Linear::Restore(
      shape, biased(), options(), made.Store(),
      [](std::span<std::byte>) { return absl::DataLossError("damaged"); });
  EXPECT_EQ(restored.status(), absl::DataLossError("damaged"));
}

INSTANTIATE_TEST_SUITE_P(
    Types, LinearRestoreTest,
    ::testing::Combine(::testing::Values(WeightType::kF32, WeightType::kBf16,
                                         WeightType::kInt8),
                       ::testing::Bool()),
    [](const auto& info) {
      return std::string(WeightTypeName(std::get<0>(info.param))) +
             (std::get<1>(info.param) ? "Biased" : "Plain");
    });

}  // namespace
}  // namespace reprise::linear_restore_test
