#include "engine/model/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A checkpoint that the test writes.
class WeightsTest : public ::testing::Test {
 protected:
  const Checkpoint& Open() {
    auto checkpoint =
        Checkpoint::OpenFile(dir_.Write("model.safetensors", writer_.File()));
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    checkpoint_.emplace(*std::move(checkpoint));
    return *checkpoint_;
  }
  Weights Make() {
    return Weights(Open(), WeightType::kF32, /*max_rows=*/4, scratch_);
  }

  // One row through a Linear.
  std::vector<float> ApplyTo(const std::vector<float>& row,
                             const absl::StatusOr<Linear>& linear) {
    EXPECT_TRUE(linear.ok()) << linear.status();
    std::vector<float> x(static_cast<size_t>(PaddedRows(1) * linear->in()));
    std::vector<float> y(static_cast<size_t>(PaddedRows(1) * linear->out()));
    std::copy(row.begin(), row.end(), x.begin());
    linear->Apply({x.data(), 1, linear->in()}, {y.data(), 1, linear->out()},
                  scratch_);
    y.resize(static_cast<size_t>(linear->out()));
    return y;
  }

  SafetensorsWriter writer_;
  TempDir dir_;
  std::optional<Checkpoint> checkpoint_;
  LinearScratch scratch_;
};

TEST_F(WeightsTest, StacksMatricesAlongTheirOutputs) {
  writer_.AddF32("a.weight", {1, 2}, {1, 2});
  writer_.AddF32("b.weight", {2, 2}, {3, 4, 5, 6});
  writer_.AddF32("b.bias", {2}, {10, 20});
  Weights weights = Make();
  const LinearRef a{{"a.weight", "x"}, {}};
  const LinearRef b{{"b.weight", "x"}, {"b.bias", "x"}};
  const LinearPart parts[] = {{a, 1}, {b, 2}};
  auto linear = weights.MakeLinear(parts, /*in=*/2);
  ASSERT_TRUE(linear.ok()) << linear.status();
  std::vector<float> x(static_cast<size_t>(PaddedRows(1) * 2));
  std::vector<float> y(static_cast<size_t>(PaddedRows(1) * 3));
  x[0] = 1;
  x[1] = 10;
  linear->Apply({x.data(), 1, 2}, {y.data(), 1, 3}, scratch_);
  // 1 + 20 | 3 + 40 + 10, 5 + 60 + 20.
  EXPECT_EQ(y[0], 21);
  EXPECT_EQ(y[1], 53);
  EXPECT_EQ(y[2], 85);
  EXPECT_EQ(weights.num_parameters(), 8);
  EXPECT_GE(weights.weight_bytes(), 8 * 4);
}

TEST_F(WeightsTest, TakesRowsOutOfATensorInTheOrderAsked) {
  // Two matrices [3, 2] in one tensor; rows 4, 5 and then 0.
  writer_.AddF32("w", {2, 3, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  Weights weights = Make();
  LinearRef ref{.weight = {"w", "x"}, .bias = {}};
  ref.stored_shape = {2, 3, 2};
  ref.rows = {{4, 2}, {0, 1}};
  const LinearPart parts[] = {{ref, 3}};
  EXPECT_THAT(ApplyTo({1, 100}, weights.MakeLinear(parts, 2)),
              ElementsAre(1009, 1211, 201));
  EXPECT_EQ(weights.num_parameters(), 12) << "the tensor is counted whole";
  EXPECT_THAT(weights.UnusedTensors(), IsEmpty());
}

TEST_F(WeightsTest, TurnsTransposedMatricesAndTakesBiasesOfAnyShape) {
  writer_.AddF32("w", {2, 3}, {1, 2, 3, 4, 5, 6});
  writer_.AddF32("b", {1, 1, 3}, {0.5F, 0.25F, 0});
  Weights weights = Make();
  LinearRef ref{.weight = {"w", "x"}, .bias = {"b", "x"}};
  ref.transposed = true;
  ref.bias_shape = {1, 1, 3};
  const LinearPart parts[] = {{ref, 3}};
  EXPECT_THAT(ApplyTo({1, 100}, weights.MakeLinear(parts, 2)),
              ElementsAre(401.5F, 502.25F, 603));
}

TEST_F(WeightsTest, NamesTheStoredShapeThatATensorOfPartsShouldHave) {
  writer_.AddF32("w", {5, 2}, std::vector<float>(10));
  Weights weights = Make();
  LinearRef ref{.weight = {"w", "num_experts"}, .bias = {}};
  ref.stored_shape = {2, 3, 2};
  ref.rows = {{0, 3}};
  const LinearPart parts[] = {{ref, 3}};
  EXPECT_EQ(std::string(weights.MakeLinear(parts, 2).status().message()),
            "tensor 'w' has shape [5, 2], config.json's num_experts needs "
            "[2, 3, 2]");
}

TEST_F(WeightsTest, NamesTensorShapeAndFieldThatDisagree) {
  writer_.AddF32("w", {2, 3}, std::vector<float>(6));
  Weights weights = Make();
  EXPECT_EQ(
      std::string(weights.Vector({"w", "hidden_size"}, 7).status().message()),
      "tensor 'w' has shape [2, 3], config.json's hidden_size needs [7]");
  const LinearRef ref{{"w", "hidden_size and expand_k"}, {}};
  const LinearPart parts[] = {{ref, 4}};
  EXPECT_EQ(std::string(weights.MakeLinear(parts, 3).status().message()),
            "tensor 'w' has shape [2, 3], config.json's hidden_size and "
            "expand_k need [4, 3]");
  EXPECT_EQ(
      std::string(
          weights.Embedding({"e", "vocab_size"}, 2, 3).status().message()),
      "tensor 'e' is missing; config.json (vocab_size) needs it with shape "
      "[2, 3]");
}

TEST_F(WeightsTest, RefusesATensorOfNothing) {
  writer_.AddF32("w", {0, 3}, {});
  Weights weights = Make();
  const LinearRef ref{{"w", "expand"}, {}};
  const LinearPart parts[] = {{ref, 0}};
  EXPECT_EQ(std::string(weights.MakeLinear(parts, 3).status().message()),
            "tensor 'w' has shape [0, 3], which is empty; config.json "
            "(expand) must make every dimension at least 1");
  EXPECT_FALSE(weights.Tensor({"w", "expand"}, {0, 3}).ok());
}

TEST_F(WeightsTest, RefusesAConfigsHugeClaimsBeforeTakingMemory) {
  writer_.AddF32("w", {1}, {1});
  Weights weights = Make();
  const LinearRef ref{{"w", "x"}, {}};
  const LinearPart parts[] = {{ref, int64_t{1} << 40}};
  EXPECT_FALSE(weights.MakeLinear(parts, int64_t{1} << 20).ok());
  EXPECT_FALSE(weights.Vector({"w", "x"}, int64_t{1} << 60).ok());
}

TEST_F(WeightsTest, RefusesNumbersThatAreNotFinite) {
  writer_.AddF32("w", {1, 1}, {std::numeric_limits<float>::infinity()});
  Weights weights = Make();
  EXPECT_EQ(weights.Embedding({"w", "x"}, 1, 1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(WeightsTest, EmbeddingsKeepTheTypeOfTheFile) {
  writer_.AddF32("f32", {2, 2}, {1, 2, 3, 4});
  writer_.Add("f16", "F16", {2, 1}, BytesOf<uint16_t>({0x3c00, 0xc000}));
  writer_.Add("bf16", "BF16", {2, 1}, BytesOf<uint16_t>({0x3f80, 0xc000}));
  Weights weights = Make();
  const auto f32 = weights.Embedding({"f32", "x"}, 2, 2);
  const auto f16 = weights.Embedding({"f16", "x"}, 2, 1);
  const auto bf16 = weights.Embedding({"bf16", "x"}, 2, 1);
  ASSERT_TRUE(f32.ok() && f16.ok() && bf16.ok());
  EXPECT_EQ(weights.weight_bytes(), 16 + 4 + 4);
  std::vector<float> row(2);
  f32->Read(1, row.data());
  EXPECT_THAT(row, ElementsAre(3, 4));
  f16->Read(1, row.data());
  EXPECT_EQ(row[0], -2);
  bf16->Read(0, row.data());
  EXPECT_EQ(row[0], 1);
}

TEST_F(WeightsTest, NoNameIsNoTensor) {
  Weights weights = Make();
  EXPECT_THAT(*weights.Vector({}, 8), IsEmpty());
}

TEST_F(WeightsTest, CountsATensorOnceAndListsTheUnused) {
  for (const char* name : {"a", "b", "c"}) writer_.AddF32(name, {2}, {1, 2});
  Weights weights = Make();
  ASSERT_TRUE(weights.Vector({"b", "x"}, 2).ok());
  ASSERT_TRUE(weights.Vector({"b", "x"}, 2).ok());
  EXPECT_EQ(weights.num_parameters(), 2);
  EXPECT_THAT(weights.UnusedTensors(), ElementsAre("a", "c"));
}

uint64_t FingerprintOf(const std::string& dtype, const std::string& bytes,
                       const std::vector<int64_t>& shape, WeightType type,
                       const std::string& config) {
  TempDir dir;
  SafetensorsWriter writer;
  writer.Add("unused", "F32", {1}, std::string(4, '\0'));
  writer.Add("t", dtype, shape, bytes);
  const auto checkpoint =
      Checkpoint::OpenFile(dir.Write("m.safetensors", writer.File()));
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  LinearScratch scratch;
  Weights weights(*checkpoint, type, /*max_rows=*/1, scratch);
  const absl::Status status =
      shape.size() == 2
          ? weights.Embedding({"t", "x"}, shape[0], shape[1]).status()
          : weights.Vector({"t", "x"}, shape[0]).status();
  EXPECT_TRUE(status.ok()) << status;
  return weights.ModelFingerprint(config);
}

TEST(ModelFingerprintTest, ChangesWithEveryBitOfAUsedTensor) {
  const std::string bytes = BytesOf<float>({1.5F, -2.25F});
  const auto fingerprint = [](const std::string& data) {
    return FingerprintOf("F32", data, {2}, WeightType::kF32, "c=1\n");
  };
  const uint64_t original = fingerprint(bytes);
  EXPECT_EQ(fingerprint(bytes), original);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    // The exponent's bits can make it infinite, which no model may hold.
    if ((static_cast<unsigned char>(changed[3]) & 0x7f) == 0x7f) continue;
    EXPECT_NE(fingerprint(changed), original) << bit;
  }
}

TEST(ModelFingerprintTest, ChangesWithTypeShapeConfigAndPacking) {
  const std::string bytes = BytesOf<uint16_t>({0x3c00, 0x3c00});
  const uint64_t base =
      FingerprintOf("F16", bytes, {2}, WeightType::kF32, "c=1\n");
  EXPECT_NE(FingerprintOf("BF16", bytes, {2}, WeightType::kF32, "c=1\n"), base);
  EXPECT_NE(FingerprintOf("F16", bytes, {1, 2}, WeightType::kF32, "c=1\n"),
            base);
  EXPECT_NE(FingerprintOf("F16", bytes, {2}, WeightType::kBf16, "c=1\n"), base);
  EXPECT_NE(FingerprintOf("F16", bytes, {2}, WeightType::kF32, "c=2\n"), base);
}

}  // namespace
}  // namespace reprise
