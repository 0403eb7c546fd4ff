// Every named shape, small, is a checkpoint that the engine takes as it is.
#include "tools/bench/random_checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "engine/base/log.h"
#include "engine/base/parallel.h"
#include "engine/engine.h"
#include "engine/load_tokenizer.h"
#include "engine/model_summary.h"
#include "tests/support/step_helpers.h"
#include "tests/support/temp_dir.h"
#include "tools/bench/shapes.h"

namespace reprise::bench {
namespace {

// Four layers have one of each kind that any shape has.
constexpr ShapeChange kSmall = {.layers = 4, .width = 512, .vocab = 600};

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

int64_t Parameters(const std::string& name) {
  int64_t parameters = 0;
  const auto shape = MakeShape(name, {});
  EXPECT_TRUE(shape.ok()) << shape.status();
  if (!shape.ok()) return 0;
  for (const TensorSpec& tensor : shape->tensors) {
    int64_t elements = 1;
    for (const int64_t dim : tensor.shape) elements *= dim;
    parameters += elements;
  }
  return parameters;
}

// Those that are published say how large they are.
TEST(ShapesTest, HaveTheSizesOfTheirModels) {
  EXPECT_EQ(Parameters("mamba-130m"), 129'135'360);   // state-spaces
  EXPECT_EQ(Parameters("mamba2-130m"), 128'989'632);  // state-spaces
  // By the 0.1 billion of its name, embeddings are not counted twice.
  EXPECT_NEAR(Parameters("rwkv7-0.1b"), 191e6, 1e6);
  EXPECT_NEAR(Parameters("linear-gpt2"), 162e6, 1e6);
  EXPECT_NEAR(Parameters("gdn-0.4b"), 0.4e9, 0.05e9);
  EXPECT_NEAR(Parameters("hybrid-0.8b"), 0.75e9, 0.05e9);
}

TEST(ShapesTest, RefuseWhatTheyCannotBe) {
  const auto unknown = MakeShape("gpt-5", {});
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(unknown.status().message(),
            "--shape=gpt-5 is not one of rwkv7-0.1b, mamba-130m, mamba2-130m, "
            "linear-gpt2, gdn-0.4b, hybrid-0.8b, linear-tiny");
  const auto narrow = MakeShape("gdn-0.4b", {.width = 768});
  EXPECT_EQ(narrow.status().message(),
            "--width=768 is not a multiple of 512, which the heads of gdn-0.4b "
            "need");
}

class RandomCheckpointTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    SetLogLevel(LogLevel::kError);
    SetNumThreads(1);
    const auto status = WriteRandomCheckpoint(GetParam(), kSmall, dir_.path());
    ASSERT_TRUE(status.ok()) << status;
  }

  const TempDir dir_;
};

TEST_P(RandomCheckpointTest, HasAllTensorsOfItsConfigAndNoOther) {
  const auto summary = SummariseModel(dir_.path());
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->unused_tensors, std::vector<std::string>());
  EXPECT_EQ(summary->num_layers, *kSmall.layers);
  EXPECT_EQ(summary->d_model, *kSmall.width);
  EXPECT_EQ(summary->vocab_size, *kSmall.vocab);
}

TEST_P(RandomCheckpointTest, IsTheSameEveryTime) {
  const TempDir again;
  ASSERT_TRUE(WriteRandomCheckpoint(GetParam(), kSmall, again.path()).ok());
  for (const char* name : {"config.json", "model.safetensors"}) {
    EXPECT_EQ(ReadFile(dir_.Path(name)), ReadFile(again.Path(name)));
  }
}

// A state that grew without bound, or a chain of layers that did, would show
// long before 2000 tokens.
TEST_P(RandomCheckpointTest, KeepsItsNumbersInBounds) {
  const auto engine = LoadEngine(
      {.model_dir = dir_.path(), .max_rows = 512, .max_context = 4096});
  ASSERT_TRUE(engine.ok()) << engine.status();
  TestSession session(**engine);
  const Tokens tokens = RandomTokens(500, *kSmall.vocab, 1);
  for (int i = 0; i < 4; ++i) {
    const Floats logits = StepAlone(**engine, session, tokens);
    double squares = 0;
    for (const float logit : logits) squares += double{logit} * logit;
    const double deviation =
        std::sqrt(squares / static_cast<double>(logits.size()));
    EXPECT_GT(deviation, 0.05) << "after " << session.position << " tokens";
    EXPECT_LT(deviation, 20) << "after " << session.position << " tokens";
  }
}

TEST_P(RandomCheckpointTest, HasATextForEveryToken) {
  const auto tokenizer = LoadTokenizer(dir_.path(), *kSmall.vocab);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::string text = "Na\xC3\xAFve \xF0\x9F\x99\x82 text\n\t'x'\\";
  const auto ids = (*tokenizer)->Encode(text, /*allow_special=*/false);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(Decode(**tokenizer, *ids, /*keep_special=*/false), text);
  std::map<std::string, int32_t> seen;
  for (int32_t id = 1; id < *kSmall.vocab; ++id) {
    const std::string bytes((*tokenizer)->TokenBytes(id));
    EXPECT_FALSE(bytes.empty()) << id;
    EXPECT_TRUE(seen.try_emplace(bytes, id).second) << id << ": " << bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RandomCheckpointTest,
                         ::testing::ValuesIn(ShapeNames()), [](const auto& i) {
                           std::string name = i.param;
                           for (char& c : name) c = isalnum(c) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace reprise::bench
