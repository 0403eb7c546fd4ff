// Checkpoints whose tensors are not those that their config asks for, for every
// case of the test data and for the layouts of RWKV that have none there: a
// missing tensor and one of another shape refuse, an extra one is told in the
// log.
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
#include "tests/support/fitting_checkpoint.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kGolden = std::string(REPRISE_TESTDATA) + "/golden/";

// The original layouts of RWKV, as BlinkDL/RWKV-LM names things: two layers,
// two heads of 4, a vocabulary of 10; ranks of 3.
constexpr int64_t kWidth = 8;
const std::vector<std::string> kGenerated = {
    "original_rwkv4", "original_rwkv5", "original_rwkv6", "original_rwkv7"};

void AddNorm(const std::string& name, TensorShapes& shapes) {
  shapes[name + ".weight"] = shapes[name + ".bias"] = {kWidth};
}

void AddTimeMix(char version, bool first, const std::string& att,
                TensorShapes& shapes) {
  const std::vector<int64_t> row = {1, 1, kWidth}, heads = {2, 4};
  const auto rows = [&](const std::string& begin, const std::string& letters) {
    for (const char letter : letters) shapes[att + begin + letter] = row;
  };
  const auto lora = [&](const std::string& base, int64_t parts) {
    shapes[att + base + "1"] = {kWidth, parts * 3};
    shapes[att + base + "2"] = {3, kWidth};
  };
  for (const char* name : {"receptance", "key", "value", "output"}) {
    shapes[att + name + ".weight"] = {kWidth, kWidth};
  }
  if (version == '4') {
    rows("time_mix_", "kvr");
    shapes[att + "time_decay"] = shapes[att + "time_first"] = {kWidth};
    return;
  }
  AddNorm(att + "ln_x", shapes);
  if (version == '7') {
    rows("x_", "rwkvag");
    rows("k_", "ka");
    shapes[att + "r_k"] = heads;
    for (const std::string letter : {"w", "a", "v", "g"}) {
      if (letter == "v" && first) continue;
      lora(letter, 1);
      if (letter != "g") shapes[att + letter + "0"] = row;
    }
    return;
  }
  shapes[att + "gate.weight"] = {kWidth, kWidth};
  shapes[att + "time_faaaa"] = shapes[att + "time_decay"] = heads;
  if (version == '5') {
    rows("time_mix_", "kvrg");
    return;
  }
  rows("time_maa_", "xwkvrg");
  shapes[att + "time_decay"] = row;
  lora("time_decay_w", 1);
  lora("time_maa_w", 5);
  shapes[att + "time_maa_w2"] = {5, 3, kWidth};
}

void AddChannelMix(char version, const std::string& ffn, TensorShapes& shapes) {
  shapes[ffn + "key.weight"] = {20, kWidth};
  shapes[ffn + "value.weight"] = {kWidth, 20};
  const std::vector<int64_t> row = {1, 1, kWidth};
  if (version == '7') {
    shapes[ffn + "x_k"] = row;
    return;
  }
  shapes[ffn + "receptance.weight"] = {kWidth, kWidth};
  const std::string mix = version == '6' ? "time_maa_" : "time_mix_";
  shapes[ffn + mix + "k"] = shapes[ffn + mix + "r"] = row;
}

// Writes the case `name`, which ends with the version.
void Generate(const std::string& name, const TempDir& dir) {
  const char version = name.back();
  dir.Write(
      "config.json",
      std::string("{\"model_type\":\"rwkv") + version +
          "\",\"vocab_size\":10,\"hidden_size\":8,"
          "\"head_dim\":4,\"intermediate_size\":20,\"num_hidden_layers\":2}");
  TensorShapes shapes;
  shapes["emb.weight"] = shapes["head.weight"] = {10, kWidth};
  AddNorm("ln_out", shapes);
  for (int i = 0; i < 2; ++i) {
    const std::string layer = "blocks." + std::to_string(i) + ".";
    if (i == 0) AddNorm(layer + "ln0", shapes);
    AddNorm(layer + "ln1", shapes);
    AddNorm(layer + "ln2", shapes);
    AddTimeMix(version, /*first=*/i == 0, layer + "att.", shapes);
    AddChannelMix(version, layer + "ffn.", shapes);
  }
  WriteZeros(dir, shapes);
}

std::vector<std::string> AllCases() {
  std::vector<std::string> names = kGenerated;
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
    "blocks.#.att.time_faaaa",                    // rwkv5, or time_first
    "emb.weight",                                 // rwkv, original or fla's
    "model.layers.#.attn.x_x",                    // rwkv7, older than x_r
    "model.language_model.embed_tokens.weight"};  // qwen3_5 of pictures

// As the file has it, or the model does without: parts that are not for text.
bool IsIgnored(const std::string& name) {
  return name.starts_with("mtp.") || name.starts_with("model.visual.");
}

class CheckpointTensorsTest : public ::testing::TestWithParam<std::string> {
 protected:
  CheckpointTensorsTest() {
    const bool generated = std::find(kGenerated.begin(), kGenerated.end(),
                                     GetParam()) != kGenerated.end();
    if (generated) Generate(GetParam(), generated_);
    const std::string source =
        generated ? generated_.path() : kGolden + GetParam();
    fs::copy_file(source + "/config.json", dir_.path() + "/config.json");
    auto checkpoint = Checkpoint::Open(source);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    checkpoint_.emplace(*std::move(checkpoint));
    SetLogLevel(LogLevel::kWarning);
  }
  ~CheckpointTensorsTest() override { SetLogLevel(LogLevel::kInfo); }

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
  TempDir generated_;
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
