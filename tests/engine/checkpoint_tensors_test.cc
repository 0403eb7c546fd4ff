// Checkpoints whose tensors are not those that their config asks for, for every
// case of the test data: a missing tensor and one of another shape refuse, an
// extra one is told in the log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/base/log.h"
#include "engine/engine.h"
#include "engine/model/safetensors.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kGolden = std::string(REPRISE_TESTDATA) + "/golden/";

std::vector<std::string> AllCases() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kGolden)) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The numbers of layers and experts replaced, so that tensors with one role
// have one name.
std::string RoleOf(const std::string& name) {
  std::string role;
  for (const char c : name) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    const bool part = !role.empty() && role.back() == '#';
    const bool begins = !role.empty() && role.back() == '.';
    if (digit && (begins || part)) {
      if (begins) role += '#';
    } else {
      role += c;
    }
  }
  return role;
}

// Tensors by which an adapter tells one layout of its family from another: what
// is missed without them has another name.
const std::set<std::string> kTellLayouts = {
    "backbone.embedding.weight",                  // mamba, or embeddings
    "model.layers.#.attn.x_x",                    // rwkv7, older than x_r
    "model.language_model.embed_tokens.weight"};  // qwen3_5 of pictures

// As the file has it, or the model does without: parts that are not for text.
bool IsIgnored(const std::string& name) {
  return name.starts_with("mtp.") || name.starts_with("model.visual.");
}

class CheckpointTensorsTest : public ::testing::TestWithParam<std::string> {
 protected:
  CheckpointTensorsTest() {
    fs::copy_file(Source() + "/config.json", dir_.path() + "/config.json");
    auto checkpoint = Checkpoint::Open(Source());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    checkpoint_.emplace(*std::move(checkpoint));
    SetLogLevel(LogLevel::kWarning);
  }
  ~CheckpointTensorsTest() override { SetLogLevel(LogLevel::kInfo); }

  static std::string Source() { return kGolden + GetParam(); }

  // One tensor's name for each role.
  std::vector<std::string> Roles() const {
    std::map<std::string, std::string> roles;
    for (const auto& item : checkpoint_->tensors()) {
      if (!IsIgnored(item.first)) roles.emplace(RoleOf(item.first), item.first);
    }
    std::vector<std::string> names;
    for (const auto& item : roles) names.push_back(item.second);
    return names;
  }

  // Loads a copy in which `change` may change the shape and the bytes of a
  // tensor, or say with false to leave it out; `extra` are added.
  template <class Change>
  absl::Status Load(Change change, const std::vector<std::string>& extra = {}) {
    SafetensorsWriter writer;
    for (const auto& [name, tensor] : checkpoint_->tensors()) {
      std::vector<int64_t> shape = tensor.shape;
      std::string bytes(tensor.bytes);
      if (!change(name, shape, bytes)) continue;
      writer.Add(name, std::string(DTypeName(tensor.dtype)), shape, bytes);
    }
    for (const std::string& name : extra) writer.AddF32(name, {2}, {1, 2});
    dir_.Write("model.safetensors", writer.File());
    return LoadEngine(
               {.model_dir = dir_.path(), .max_rows = 64, .max_context = 64})
        .status();
  }

 private:
  TempDir dir_;
  std::optional<Checkpoint> checkpoint_;
};

TEST_P(CheckpointTensorsTest, AMissingTensorRefusesByName) {
  for (const std::string& gone : Roles()) {
    const absl::Status status = Load([&gone](const std::string& name, auto&,
                                             auto&) { return name != gone; });
    ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << gone;
    const std::string named =
        kTellLayouts.contains(RoleOf(gone)) ? "" : "'" + gone + "'";
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("tensor " + named), HasSubstr("is missing"),
                      HasSubstr("config.json")));
  }
}

TEST_P(CheckpointTensorsTest, ATensorOfAnotherShapeRefusesByName) {
  for (const std::string& bent : Roles()) {
    const absl::Status status =
        Load([&bent](const std::string& name, std::vector<int64_t>& shape,
                     std::string& bytes) {
          if (name != bent) return true;
          shape.insert(shape.begin(), 2);
          bytes += std::string(bytes);
          return true;
        });
    ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bent;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("tensor '" + bent + "' has shape [2, "),
                      HasSubstr("config.json's")));
  }
}

TEST_P(CheckpointTensorsTest, ExtraTensorsAreToldAndNoOthers) {
  const auto keep = [](const std::string&, auto&, auto&) { return true; };
  testing::internal::CaptureStderr();
  EXPECT_TRUE(Load(keep).ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              Not(HasSubstr("does not use")));

  std::vector<std::string> extra;
  for (int i = 0; i < 7; ++i) extra.push_back("extra." + std::to_string(i));
  testing::internal::CaptureStderr();
  EXPECT_TRUE(Load(keep, extra).ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("warning tensors of the checkpoint that the "
                              "model does not use count=7"),
                    HasSubstr("'extra.0', 'extra.1', "), HasSubstr("extra.4"),
                    Not(HasSubstr("extra.5"))));
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointTensorsTest,
                         ::testing::ValuesIn(AllCases()),
                         [](const ::testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });

}  // namespace
}  // namespace reprise
