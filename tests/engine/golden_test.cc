// The engine against outputs that other implementations computed, and the
// comparison itself against outputs made wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/model/safetensors.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"
#include "tools/golden/golden_case.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string CaseDir(const std::string& name) {
  return std::string(REPRISE_TESTDATA) + "/golden/" + name;
}

// The cases of the test data, and the embedded model.
std::vector<std::string> GoldenCaseDirs() {
  std::vector<std::string> dirs;
  for (const auto& entry :
       fs::directory_iterator(std::string(REPRISE_TESTDATA) + "/golden")) {
    if (entry.is_directory()) dirs.push_back(entry.path());
  }
  const std::string embedded =
      std::string(REPRISE_SOURCE_DIR) + "/models/embedded";
  if (fs::exists(embedded + "/golden.safetensors")) dirs.push_back(embedded);
  std::sort(dirs.begin(), dirs.end());
  return dirs;
}

class GoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, LogitsStatesAndGreedyTokensAgree) {
  const GoldenResult result = RunGoldenCase(GetParam(), WeightType::kF32);
  EXPECT_TRUE(result.ok()) << result.failure << "; logits differ by "
                           << result.logits_error << ", states by "
                           << result.state_error;
  EXPECT_GT(result.numbers, 10'000);
  EXPECT_GE(result.greedy_total, 32);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTest, ::testing::ValuesIn(GoldenCaseDirs()),
                         [](const ::testing::TestParamInfo<std::string>& info) {
                           return fs::path(info.param).filename().string();
                         });

TEST(GoldenCaseTest, ThereAreCases) { EXPECT_GE(GoldenCaseDirs().size(), 6u); }

// A copy of a case whose golden.safetensors is changed by `change`, which gets
// the name, the type and the bytes of every tensor.
template <class Change>
GoldenResult RunChanged(Change change) {
  const std::string source = CaseDir("linear_attn_elu");
  TempDir dir;
  for (const char* name : {"config.json", "model.safetensors"}) {
    fs::copy_file(source + "/" + name, dir.path() + "/" + name);
  }
  const auto golden = Checkpoint::OpenFile(source + "/golden.safetensors");
  EXPECT_TRUE(golden.ok()) << golden.status();
  SafetensorsWriter writer;
  for (const auto& [name, tensor] : golden->tensors()) {
    std::string bytes(tensor.bytes);
    std::vector<int64_t> shape = tensor.shape;
    if (!change(name, shape, bytes)) continue;
    writer.Add(name, std::string(DTypeName(tensor.dtype)), shape, bytes);
  }
  dir.Write("golden.safetensors", writer.File());
  return RunGoldenCase(dir.path(), WeightType::kF32);
}

// Adds `offset` to the last float of `bytes`.
void Shift(std::string& bytes, float offset) {
  float value;
  char* const last = bytes.data() + bytes.size() - sizeof(value);
  std::memcpy(&value, last, sizeof(value));
  value += offset;
  std::memcpy(last, &value, sizeof(value));
}

// Moves one number of the tensor called `target`.
GoldenResult RunShifted(const std::string& target, float offset) {
  return RunChanged([&](const std::string& name, auto&, std::string& bytes) {
    if (name == target) Shift(bytes, offset);
    return true;
  });
}

TEST(GoldenCaseTest, UnchangedCopyIsOk) {
  const GoldenResult result = RunShifted("none", 0);
  EXPECT_TRUE(result.ok()) << result.failure;
}

TEST(GoldenCaseTest, OneWrongNumberFails) {
  for (const char* name : {"logits", "logits_2"}) {
    const GoldenResult result = RunShifted(name, 3e-4F);
    EXPECT_THAT(result.failure, HasSubstr("logits differ")) << name;
    EXPECT_NEAR(result.logits_error, 3e-4, 2e-5);
  }
  for (const char* name : {"state.0.z", "state_2.1.recurrent"}) {
    const GoldenResult result = RunShifted(name, 0.1F);
    EXPECT_THAT(result.failure, HasSubstr("states differ")) << name;
    EXPECT_NEAR(result.state_error, 0.1, 1e-3);
  }
}

TEST(GoldenCaseTest, TheDivergenceIsTheMeanOverPositions) {
  const std::string file = CaseDir("linear_attn_elu") + "/golden.safetensors";
  const auto golden = Checkpoint::OpenFile(file);
  const TensorInfo& info = *golden->Find("logits");
  std::vector<float> logits(static_cast<size_t>(info.elements));
  ASSERT_TRUE(golden->ReadF32("logits", logits).ok());
  const auto vocab = static_cast<size_t>(info.shape[2]);
  // The file's last row has its last logit raised; ours stays as it was.
  const std::vector<float> ours(logits.end() - static_cast<int64_t>(vocab),
                                logits.end());
  std::vector<float> theirs = ours;
  theirs.back() += 5;
  double our_sum = 0, their_sum = 0;
  for (size_t i = 0; i < vocab; ++i) {
    our_sum += std::exp(double{ours[i]});
    their_sum += std::exp(double{theirs[i]});
  }
  double expected = 0;
  for (size_t i = 0; i < vocab; ++i) {
    const double p = std::exp(double{theirs[i]}) / their_sum;
    expected += p * std::log(p / (std::exp(double{ours[i]}) / our_sum));
  }
  const double positions =
      static_cast<double>(info.shape[0] * info.shape[1] +
                          golden->Find("logits_2")->elements / info.shape[2]);
  EXPECT_LT(RunShifted("none", 0).divergence, 1e-10);
  EXPECT_NEAR(RunShifted("logits", 5).divergence, expected / positions, 1e-6);
}

TEST(GoldenCaseTest, AWrongGreedyTokenFails) {
  const GoldenResult result =
      RunChanged([](const std::string& name, auto&, std::string& bytes) {
        if (name == "greedy_ids") bytes.front() = bytes.front() == 1 ? 2 : 1;
        return true;
      });
  EXPECT_THAT(result.failure, HasSubstr("greedy tokens differ"));
  EXPECT_EQ(result.greedy_agreed + 1, result.greedy_total);
}

TEST(GoldenCaseTest, MalformedGoldenFilesFailWithTheTensor) {
  const auto without = [](const std::string& target) {
    return RunChanged([&target](const std::string& name, auto&, auto&) {
      return name != target;
    });
  };
  EXPECT_THAT(without("logits").failure, HasSubstr("'logits' is missing"));
  EXPECT_THAT(without("input_ids").failure, HasSubstr("'input_ids'"));
  const GoldenResult past =
      RunChanged([](const std::string& name, auto&, std::string& bytes) {
        if (name == "input_ids_2") bytes[1] = 1;  // 256 or more
        return true;
      });
  EXPECT_THAT(past.failure,
              HasSubstr("'input_ids_2' has an id past the vocabulary"));
  const GoldenResult shape = RunChanged(
      [](const std::string& name, std::vector<int64_t>& s, std::string&) {
        if (name == "state.1.recurrent") std::swap(s[0], s[3]);
        return true;
      });
  EXPECT_THAT(shape.failure, HasSubstr("'state.1.recurrent' has shape"));
}

TEST(GoldenCaseTest, AFamilyThatIsNotSupportedFailsWithTheRefusal) {
  TempDir dir;
  fs::copy_file(CaseDir("linear_attn_elu") + "/model.safetensors",
                dir.path() + "/model.safetensors");
  dir.Write("config.json", R"({"model_type":"gpt2"})");
  EXPECT_THAT(RunGoldenCase(dir.path(), WeightType::kF32).failure,
              HasSubstr("field 'model_type' is 'gpt2'"));
}

}  // namespace
}  // namespace reprise
