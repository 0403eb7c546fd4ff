#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/log.h"
#include "engine/kernels/state_kernels.h"
#include "engine/model/safetensors.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/step_helpers.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kModel =
    std::string(REPRISE_TESTDATA) + "/golden/linear_attn_elu";

std::unique_ptr<Engine> MustLoad(const std::string& dir,
                                 int64_t max_rows = 128) {
  SetLogLevel(LogLevel::kError);
  auto engine = LoadEngine(
      {.model_dir = dir, .weights = WeightType::kF32, .max_rows = max_rows});
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

// A copy of the model with tensors changed by `change`, which gets the name,
// the shape and the bytes, and returns whether to keep the tensor.
template <class Change>
absl::Status LoadChanged(Change change) {
  SetLogLevel(LogLevel::kError);
  TempDir dir;
  fs::copy_file(kModel + "/config.json", dir.path() + "/config.json");
  const auto source = Checkpoint::Open(kModel);
  EXPECT_TRUE(source.ok()) << source.status();
  SafetensorsWriter writer;
  for (const auto& [name, tensor] : source->tensors()) {
    std::vector<int64_t> shape = tensor.shape;
    std::string bytes(tensor.bytes);
    if (change(name, shape, bytes)) writer.Add(name, "F32", shape, bytes);
  }
  dir.Write("model.safetensors", writer.File());
  return LoadEngine({.model_dir = dir.path(), .weights = WeightType::kF32})
      .status();
}

TEST(ModelNameTest, IsThatOfTheFolderWhateverPathLeadsThere) {
  const TempDir dir;
  const std::string folder = dir.Path("tiny");
  fs::create_directories(folder + "/inner");
  fs::create_directory_symlink(folder, dir.Path("link"));
  for (const std::string& path : {folder, folder + "/", folder + "/.",
                                  folder + "/inner/..", dir.Path("link")}) {
    EXPECT_EQ(ModelName(path), "tiny") << path;
  }
  const fs::path before = fs::current_path();
  fs::current_path(folder);
  EXPECT_EQ(ModelName("."), "tiny");
  EXPECT_EQ(ModelName("inner/.."), "tiny");
  fs::current_path(before);
}

TEST(LoadEngineTest, DescribesTheModel) {
  const std::unique_ptr<Engine> engine = MustLoad(kModel + "/");
  const ModelInfo& info = engine->info();
  EXPECT_EQ(info.name, "linear_attn_elu");
  EXPECT_EQ(info.family, "linear_attn");
  EXPECT_EQ(info.description,
            "2 x (linear_attention + gated_ffn), width 64, vocabulary 256");
  EXPECT_EQ(info.vocab_size, 256);
  EXPECT_EQ(info.d_model, 64);
  EXPECT_EQ(info.num_layers, 2);
  EXPECT_EQ(info.num_parameters, 127360);  // as the golden data states
  EXPECT_GE(info.weight_bytes, 4 * info.num_parameters);
  // 2 layers of 2 heads of 32 x 32 numbers and 32 sums.
  EXPECT_EQ(info.state_bytes, 2 * 2 * (32 * 32 + 32) * 4);
  EXPECT_EQ(info.weight_type, WeightType::kF32);
  EXPECT_FALSE(info.cpu_isa.empty());
  EXPECT_THAT(info.eos_tokens, ElementsAre(2));
  EXPECT_EQ(info.bos_token, 1);
  EXPECT_NE(info.fingerprints.model, 0u);
  EXPECT_EQ(info.fingerprints.layout, engine->layout().fingerprint());
  EXPECT_EQ(info.fingerprints.tokenizer, 0u);
  EXPECT_EQ(engine->max_rows(), 128);
}

TEST(LoadEngineTest, CountsATiedHeadOnce) {
  const std::unique_ptr<Engine> engine = MustLoad(
      std::string(REPRISE_TESTDATA) + "/golden/linear_attn_elu_gqa_tied");
  EXPECT_EQ(engine->info().num_parameters, 314856);
}

TEST(LoadEngineTest, NamesTheFieldsOfTheState) {
  const std::unique_ptr<Engine> engine = MustLoad(kModel);
  std::vector<std::string> names;
  for (const StateField& field : engine->layout().fields()) {
    names.push_back(field.name);
  }
  EXPECT_THAT(names, ElementsAre("0.recurrent", "0.z", "1.recurrent", "1.z"));
  EXPECT_THAT(engine->layout().fields()[0].shape, ElementsAre(2, 32, 32));
  EXPECT_THAT(engine->layout().fields()[1].shape, ElementsAre(2, 32));
}

TEST(LoadEngineTest, FingerprintTellsModelsAndPackingsApart) {
  const std::unique_ptr<Engine> engine = MustLoad(kModel);
  const uint64_t fingerprint = engine->info().fingerprints.model;
  EXPECT_EQ(MustLoad(kModel)->info().fingerprints.model, fingerprint);
  for (const WeightType type : {WeightType::kBf16, WeightType::kInt8}) {
    const auto other = LoadEngine({.model_dir = kModel, .weights = type});
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_NE((*other)->info().fingerprints.model, fingerprint);
  }
  EXPECT_NE(
      MustLoad(std::string(REPRISE_TESTDATA) + "/golden/linear_attn_hedgehog")
          ->info()
          .fingerprints.model,
      fingerprint);
}

TEST(LoadEngineTest, RefusesWhatIsNotThere) {
  TempDir dir;
  EXPECT_EQ(LoadEngine({.model_dir = dir.path()}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(LoadEngine({.model_dir = dir.path() + "/x"}).status().code(),
            absl::StatusCode::kNotFound);
  const absl::Status status =
      LoadChanged([](const std::string& name, auto&, auto&) {
        return name != "model.layers.1.attn.o_proj.weight";
      });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("'model.layers.1.attn.o_proj.weight' is missing"));
}

TEST(LoadEngineTest, RefusesATensorThatIsNotWhatTheConfigSays) {
  const absl::Status shape =
      LoadChanged([](const std::string& name, std::vector<int64_t>& s, auto&) {
        if (name == "model.layers.0.mlp.down_proj.weight") {
          std::swap(s[0], s[1]);
        }
        return true;
      });
  EXPECT_EQ(shape.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(shape.message()),
            "tensor 'model.layers.0.mlp.down_proj.weight' has shape "
            "[160, 64], config.json's hidden_size and intermediate_size need "
            "[64, 160]");
  const absl::Status nan =
      LoadChanged([](const std::string& name, auto&, std::string& bytes) {
        if (name == "lm_head.weight") bytes.replace(0, 4, "\0\0\xc0\x7f", 4);
        return true;
      });
  EXPECT_EQ(nan.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(nan.message()), HasSubstr("'lm_head.weight'"));
}

TEST(LoadEngineTest, IgnoresTensorsThatTheModelDoesNotUse) {
  TempDir dir;
  fs::copy_file(kModel + "/config.json", dir.path() + "/config.json");
  const auto source = Checkpoint::Open(kModel);
  ASSERT_TRUE(source.ok());
  SafetensorsWriter writer;
  writer.Add("extra.position_ids", "I64", {1}, std::string(8, '\0'));
  for (const auto& [name, tensor] : source->tensors()) {
    writer.Add(name, "F32", tensor.shape, std::string(tensor.bytes));
  }
  dir.Write("model.safetensors", writer.File());
  EXPECT_EQ(MustLoad(dir.path())->info().fingerprints.model,
            MustLoad(kModel)->info().fingerprints.model);
}

TEST(LoadEngineTest, RefusesRowCountsThatAreNoTiles) {
  for (const int64_t rows :
       {int64_t{0}, int64_t{63}, int64_t{100}, int64_t{-64}}) {
    const auto engine = LoadEngine({.model_dir = kModel, .max_rows = rows});
    EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(engine.status().message()),
                HasSubstr("max_rows is " + std::to_string(rows)));
  }
}

TEST(EngineStepTest, ReturnsLogitsInTheOrderOfTheSegments) {
  const std::unique_ptr<Engine> engine = MustLoad(kModel);
  const Tokens a = RandomTokens(5, 256, 1);
  const Tokens b = RandomTokens(3, 256, 2);
  const Tokens c = RandomTokens(2, 256, 3);
  TestSession sa(*engine), sb(*engine), sc(*engine);
  const Floats la = StepAlone(*engine, sa, a, LogitsFor::kAllRows);
  const Floats lc = StepAlone(*engine, sc, c, LogitsFor::kLastRow);
  TestSession ta(*engine), tb(*engine), tc(*engine);
  const StepSegment segments[] = {TakeSegment(ta, a, LogitsFor::kAllRows),
                                  TakeSegment(tb, b, LogitsFor::kNone),
                                  TakeSegment(tc, c, LogitsFor::kLastRow)};
  const MatrixView<float> logits = engine->Step(segments);
  ASSERT_EQ(logits.rows, 6);
  ASSERT_EQ(logits.cols, 256);
  // As the segments' logits alone.
  for (int64_t row = 0; row < 5; ++row) {
    for (int64_t i = 0; i < 256; ++i) {
      EXPECT_EQ(logits.Row(row)[i], la[static_cast<size_t>(row * 256 + i)]);
    }
  }
  for (int64_t i = 0; i < 256; ++i) {
    EXPECT_EQ(logits.Row(5)[i], lc[static_cast<size_t>(i)]);
  }
}

TEST(EngineStepTest, LogitsMayBeOverwrittenByTheCaller) {
  const std::unique_ptr<Engine> engine = MustLoad(kModel);
  const Tokens tokens = RandomTokens(3, 256, 1);
  TestSession first(*engine), second(*engine);
  StepSegment segment = TakeSegment(first, tokens, LogitsFor::kLastRow);
  MatrixView<float> logits = engine->Step({&segment, 1});
  const Floats expected(logits.data, logits.data + logits.cols);
  std::fill_n(logits.data, logits.cols, -1e30F);
  EXPECT_TRUE(SameBits(StepAlone(*engine, second, tokens), expected));
}

TEST(EngineStepTest, TakesAsManyRowsAsItSays) {
  const std::unique_ptr<Engine> engine = MustLoad(kModel);
  TestSession session(*engine);
  const Tokens tokens = RandomTokens(128, 256, 1);
  EXPECT_EQ(
      std::ssize(StepAlone(*engine, session, tokens, LogitsFor::kAllRows)),
      128 * 256);
}

TEST(EngineStepDeathTest, ChecksItsLimits) {
  // The team's threads do not survive a plain fork.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::unique_ptr<Engine> engine = MustLoad(kModel);
  TestSession session(*engine);
  const Tokens fine = {1};
  const auto step = [&](const Tokens& tokens, std::byte* slot, int64_t position,
                        int copies = 1) {
    const std::vector<StepSegment> segments(
        static_cast<size_t>(copies),
        {.tokens = tokens, .position = position, .slot = slot});
    engine->Step(segments);
  };
  step(fine, session.data(), 0);
  EXPECT_DEATH(step(fine, session.data(), 0, 0), "");
  EXPECT_DEATH(step({}, session.data(), 0), "");
  EXPECT_DEATH(step({256}, session.data(), 0), "");
  EXPECT_DEATH(step({-1}, session.data(), 0), "");
  EXPECT_DEATH(step(Tokens(129, 1), session.data(), 0), "");
  EXPECT_DEATH(step(fine, nullptr, 0), "");
  EXPECT_DEATH(step(fine, session.data(), -1), "");
  EXPECT_DEATH(step(fine, session.data(), 0, /*copies=*/2), "");
}

}  // namespace
}  // namespace reprise
