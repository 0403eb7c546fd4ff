// Whatever numbers a config has, a model of it is refused or runs: with a
// checkpoint that fits it, so that nothing but the config can be at fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/log.h"
#include "engine/engine.h"
#include "engine/model/model_config.h"
#include "engine/model/safetensors.h"
#include "engine/model_summary.h"
#include "tests/support/fitting_checkpoint.h"
#include "tests/support/json.h"
#include "tests/support/step_helpers.h"
#include "tests/support/temp_dir.h"

namespace reprise::config_values_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kGolden = std::string(REPRISE_TESTDATA) + "/golden/";

std::vector<std::string> AllCases() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kGolden)) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Json ConfigOf(const std::string& name) {
  return ReadJson(kGolden + name + "/config.json");
}

// Paths of all numbers in `value`.
void FindNumbers(const Json& value, const std::string& path,
                 std::vector<std::string>& found) {
  if (value.is_number()) found.push_back(path);
  if (!value.is_structured()) return;
  for (const auto& [key, inner] : value.items()) {
    FindNumbers(inner, path + "/" + key, found);
  }
}

// What a field's number is replaced with; null is as if it were absent.
const Json kValues = JsonOf(R"(
    [null, 0, 1, 3, 8, -1, 0.1, 1e-9, 1e308, -1e308, 2147483648,
     9007199254740992, 18446744073709551615, "NaN", "1", []])");

// Fits a checkpoint to the folder's config, loads it and runs two steps.
absl::Status LoadAndStep(const TempDir& dir, TensorShapes shapes) {
  const absl::StatusOr<ModelSummary> summary = SummariseFitting(dir, shapes);
  if (!summary.ok()) return summary.status();
  // No more memory and time than a test should take.
  constexpr int64_t kMostParameters = 1 << 20;
  if (summary->num_parameters > kMostParameters) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      LoadEngine({.model_dir = dir.path(), .max_rows = 64, .max_context = 64});
  if (!engine.ok()) return engine.status();
  TestSession session(**engine);
  StepAlone(**engine, session, Tokens(3));
  StepAlone(**engine, session, Tokens(1));
  return absl::OkStatus();
}

// The fields that the folder's config is read for, with their values.
absl::StatusOr<std::string> FieldsRead(const TempDir& dir) {
  const auto checkpoint = Checkpoint::Open(dir.path());
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto model = LoadModelDescription(dir.path(), *checkpoint);
  if (!model.ok()) return model.status();
  return model->config_text;
}

class ConfigValuesTest : public ::testing::TestWithParam<std::string> {
 protected:
  ConfigValuesTest() { SetLogLevel(LogLevel::kError); }
  ~ConfigValuesTest() override { SetLogLevel(LogLevel::kInfo); }

  TempDir dir_;
};

TEST_P(ConfigValuesTest, AnyNumberIsRefusedOrRuns) {
  const Json config = ConfigOf(GetParam());
  const TensorShapes shapes = ShapesOf(kGolden + GetParam());
  WriteZeros(dir_, shapes);
  dir_.Write("config.json", JsonText(config));
  const absl::StatusOr<std::string> unchanged = FieldsRead(dir_);
  ASSERT_TRUE(unchanged.ok()) << unchanged.status();
  std::vector<std::string> fields;
  FindNumbers(config, "", fields);
  int64_t runs = 0, refusals = 0;
  for (const std::string& field : fields) {
    for (const Json& value : kValues) {
      Json changed = config;
      changed[Json::json_pointer(field)] = value;
      SCOPED_TRACE(field + " = " + JsonText(value));
      dir_.Write("config.json", JsonText(changed));
      WriteZeros(dir_, shapes);
      const absl::StatusOr<std::string> read = FieldsRead(dir_);
      if (read.ok() && *read == *unchanged) continue;  // the same model
      const absl::Status status =
          read.ok() ? LoadAndStep(dir_, shapes) : read.status();
      ++(status.ok() ? runs : refusals);
      if (status.ok()) continue;
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    }
  }
  EXPECT_GT(runs, 0);
  EXPECT_GT(refusals, 0);
}

INSTANTIATE_TEST_SUITE_P(All, ConfigValuesTest, ::testing::ValuesIn(AllCases()),
                         [](const ::testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });

// A value that follows from others has the limits of one that is written down.
TEST(ConfigLimitsTest, AHeadDimThatFollowsIsNotTooLarge) {
  Json config = ConfigOf("rwkv7_rand_fla");
  config["hidden_size"] = 512;
  config["num_heads"] = 1;
  config["value_dim"] = nullptr;
  config["head_dim"] = nullptr;
  const TempDir dir;
  dir.Write("config.json", JsonText(config));
  const absl::Status status =
      LoadAndStep(dir, ShapesOf(kGolden + "rwkv7_rand_fla"));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "config.json: field 'head_dim' is absent, which makes it 512 "
            "here; it must be a whole number in 1..256");
}

// Each is within its limits, and the file has what they ask for.
TEST(ConfigLimitsTest, AStateBeyondAllMemoryIsRefusedByItsShape) {
  const TempDir dir;
  dir.Write("config.json", R"({
      "model_type": "mistral", "vocab_size": 1, "hidden_size": 1,
      "num_hidden_layers": 1, "intermediate_size": 1,
      "num_attention_heads": 65536, "num_key_value_heads": 65536,
      "head_dim": 512, "sliding_window": 16777216})");
  TensorShapes shapes;
  const absl::StatusOr<ModelSummary> summary = SummariseFitting(dir, shapes);
  EXPECT_EQ(summary.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(summary.status().message()),
              AllOf(HasSubstr("'0.attn_k' of shape [16777216, 65536, 512]"),
                    HasSubstr("above 1125899906842624 bytes, the limit")));
}

}  // namespace
}  // namespace reprise::config_values_test
