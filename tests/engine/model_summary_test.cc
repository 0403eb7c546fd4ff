// Summaries of checkpoints against numbers worked out by hand from their
// config.json and the shapes in their files, and against the loaded models.
#include "engine/model_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/model/safetensors.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"

namespace reprise::model_summary_test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

std::string CaseDir(const std::string& name) {
  return std::string(REPRISE_TESTDATA) + "/golden/" + name;
}

ModelSummary Summarise(const std::string& name) {
  absl::StatusOr<ModelSummary> summary = SummariseModel(CaseDir(name));
  EXPECT_TRUE(summary.ok()) << summary.status();
  return summary.ok() ? *summary : ModelSummary();
}

// Two layers of width 64; two heads with keys of 16 and values of 32.
TEST(ModelSummaryTest, OfGatedLinearAttention) {
  const ModelSummary s = Summarise("gla_small");
  EXPECT_EQ(s.family, "gla");
  EXPECT_EQ(s.vocab_size, 256);
  EXPECT_EQ(s.d_model, 64);
  EXPECT_EQ(s.num_layers, 2);
  EXPECT_EQ(s.num_parameters, 130'496);
  EXPECT_THAT(s.bytes_by_dtype, ElementsAre(Pair("F32", 521'984)));
  EXPECT_THAT(s.unused_tensors, IsEmpty());
  EXPECT_EQ(s.repeats, 2);
  ASSERT_EQ(s.period.size(), 1u);
  EXPECT_EQ(s.period[0].count, 1);
  EXPECT_THAT(s.period[0].layer.mixers,
              ElementsAre("gated_linear_attention", "gated_ffn"));
  EXPECT_THAT(s.period[0].layer.state,
              ElementsAre(FieldSummary{"recurrent", {2, 16, 32}}));
  // 2 layers x 1024 numbers x 4 bytes; of the other, 2 x 2 x 64 x 4 a token.
  EXPECT_EQ(s.state_bytes, 8192);
  EXPECT_EQ(s.state_bytes_per_token, 0);
  ASSERT_EQ(s.memory.size(), 4u);
  EXPECT_EQ(s.memory[0].tokens, 1024);
  EXPECT_EQ(s.memory[0].state_bytes, 8192);
  EXPECT_EQ(s.memory[0].kv_cache_bytes, 1'048'576);
  EXPECT_EQ(s.memory[1].tokens, 32'768);
  EXPECT_EQ(s.memory[2].tokens, 131'072);
  EXPECT_EQ(s.memory[3].tokens, 1'048'576);
  EXPECT_EQ(s.memory[3].state_bytes, 8192);
  EXPECT_EQ(s.memory[3].kv_cache_bytes, 1'073'741'824);
  EXPECT_EQ(s.smaller_from_tokens, 9);  // after 8 they are equal
  // q, k 32 x 64; v, g, o 64 x 64; the gate's 16 x 64 and 32 x 16; the FFN's
  // 3 x 160 x 64: 48,640 a layer; and the head, 256 x 64.
  EXPECT_EQ(s.work.weights, 2 * (2 * 48'640 + 16'384));
  EXPECT_EQ(s.work.state, 4 * 2 * 1024);
  EXPECT_EQ(s.work.per_context_token, 0);
}

// The same with an attention layer in the middle: 4 heads of 16, 2 for keys and
// values.
TEST(ModelSummaryTest, OfAHybridThatGrows) {
  const ModelSummary s = Summarise("hybrid_gla_fullattn");
  EXPECT_EQ(s.num_parameters, 155'200);
  EXPECT_EQ(s.repeats, 1);
  ASSERT_EQ(s.period.size(), 3u);
  EXPECT_THAT(s.period[1].layer.mixers,
              ElementsAre("softmax_attention", "gated_ffn"));
  ASSERT_EQ(s.period[1].layer.state.size(), 2u);
  for (const FieldSummary& field : s.period[1].layer.state) {
    EXPECT_EQ(field.growth, Growth::kContext);
  }
  EXPECT_EQ(s.period[0].layer, s.period[2].layer);
  // 2 layers x 1024 x 4, and for each token 2 x 2 x 16 x 4.
  EXPECT_EQ(s.state_bytes, 8192);
  EXPECT_EQ(s.state_bytes_per_token, 256);
  EXPECT_EQ(s.memory[0].state_bytes, 8192 + 1024 * 256);
  EXPECT_EQ(s.memory[0].kv_cache_bytes, 1024 * 3 * 2 * 64 * 4);
  EXPECT_EQ(s.memory[3].state_bytes, 8192 + 1'048'576 * 256);
  EXPECT_EQ(s.smaller_from_tokens, 7);  // 8192 + 256 t < 1536 t
  // As above but for an FFN of 128: 42,496; attention 12,288 and 24,576.
  EXPECT_EQ(s.work.weights, 2 * (2 * 42'496 + 36'864 + 16'384));
  EXPECT_EQ(s.work.state, 4 * 2 * 1024);
  EXPECT_EQ(s.work.per_context_token, 4 * 4 * 16);
}

// Two layers of width 96; 3 heads of 32, one for keys and values, the last 24
// tokens.
TEST(ModelSummaryTest, OfWindowedAttention) {
  const ModelSummary s = Summarise("transformer_fla_qknorm_window");
  EXPECT_EQ(s.num_parameters, 162'208);
  EXPECT_EQ(s.repeats, 2);
  ASSERT_EQ(s.period.size(), 1u);
  for (const FieldSummary& field : s.period[0].layer.state) {
    EXPECT_EQ(field.growth, Growth::kWindow);
    EXPECT_EQ(field.window, 24);
  }
  EXPECT_EQ(s.state_bytes, 2 * 24 * 2 * 32 * 4);
  EXPECT_EQ(s.state_bytes_per_token, 0);
  EXPECT_EQ(s.memory[3].state_bytes, s.state_bytes);
  EXPECT_EQ(s.smaller_from_tokens, 1);  // a third of the keys and values
  // q, o 96 x 96; k, v 32 x 96; the FFN's 3 x 128 x 96; the head, 200 x 96.
  EXPECT_EQ(s.work.weights, 2 * (2 * (24'576 + 36'864) + 19'200));
  EXPECT_EQ(s.work.state, 2 * 4 * 3 * 32 * 24);
  EXPECT_EQ(s.work.per_context_token, 0);
}

// Three layers of gated DeltaNet (2 key heads of 16, 4 value heads of 24) and
// one of attention (4 heads of 32, 2 for keys and values); every layer has 8
// experts of 24, of which a token visits 3, and a shared one of 32.
TEST(ModelSummaryTest, OfAMixtureOfExperts) {
  const ModelSummary s = Summarise("qwen3_next_moe");
  EXPECT_EQ(s.num_parameters, 311'648);
  EXPECT_THAT(s.bytes_by_dtype, ElementsAre(Pair("BF16", 623'296)));
  ASSERT_EQ(s.period.size(), 2u);
  EXPECT_EQ(s.period[0].count, 3);
  EXPECT_THAT(s.period[0].layer.mixers, ElementsAre("delta_net", "moe_ffn"));
  EXPECT_EQ(s.period[1].count, 1);
  EXPECT_THAT(s.period[1].layer.mixers,
              ElementsAre("softmax_attention", "moe_ffn"));
  EXPECT_EQ(s.state_bytes_per_token, 2 * 2 * 32 * 4);
  // Projections of 64: to 256 and 8, and back from 96; to 256, 64 and 64, and
  // back from 128. The router and the shared expert's gate; the experts, three
  // matrices each; the head.
  const int64_t linear = (256 + 8 + 96) * 64;
  const int64_t attention = (256 + 64 + 64 + 128) * 64;
  const int64_t experts = (8 + 1 + 3 * 32 + 3 * 3 * 24) * 64;
  EXPECT_EQ(s.work.weights,
            2 * (3 * linear + attention + 4 * experts + 256 * 64));
  EXPECT_EQ(s.work.per_context_token, 4 * 4 * 32);
}

std::vector<std::string> AllCases() {
  std::vector<std::string> dirs = {std::string(REPRISE_SOURCE_DIR) +
                                   "/models/embedded"};
  for (const auto& entry :
       fs::directory_iterator(std::string(REPRISE_TESTDATA) + "/golden")) {
    if (entry.is_directory()) dirs.push_back(entry.path());
  }
  std::sort(dirs.begin(), dirs.end());
  return dirs;
}

class LoadedTest : public ::testing::TestWithParam<std::string> {};

TEST_P(LoadedTest, LoadingSaysTheSame) {
  const absl::StatusOr<ModelSummary> summary = SummariseModel(GetParam());
  ASSERT_TRUE(summary.ok()) << summary.status();
  const auto engine = LoadEngine({.model_dir = GetParam(),
                                  .weights = WeightType::kF32,
                                  .max_rows = 64,
                                  .max_context = 2048});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const ModelInfo& info = (*engine)->info();
  EXPECT_EQ(summary->family, info.family);
  EXPECT_EQ(summary->vocab_size, info.vocab_size);
  EXPECT_EQ(summary->d_model, info.d_model);
  EXPECT_EQ(summary->num_layers, info.num_layers);
  EXPECT_EQ(summary->num_parameters, info.num_parameters);
  EXPECT_EQ(summary->state_bytes, info.state_bytes);
  EXPECT_EQ(summary->state_bytes_per_token, info.state_bytes_per_token);
  EXPECT_EQ(summary->memory[0].state_bytes,
            (*engine)->layout().PayloadBytesAt(1024));
  int64_t layers = 0;
  for (const LayerRun& run : summary->period) layers += run.count;
  EXPECT_EQ(summary->repeats * layers, info.num_layers);
  // At least the weights of the matrices that all cases have.
  EXPECT_GT(summary->work.weights, 2 * info.vocab_size * info.d_model);
}

INSTANTIATE_TEST_SUITE_P(All, LoadedTest, ::testing::ValuesIn(AllCases()),
                         [](const ::testing::TestParamInfo<std::string>& info) {
                           return fs::path(info.param).filename().string();
                         });

// Whatever stands in the data; none of it is read.
TEST(ModelSummaryTest, ReadsNoNumbers) {
  TempDir dir;
  fs::copy(CaseDir("gla_small"), dir.path());
  const std::string path = dir.Path("model.safetensors");
  const int64_t size = static_cast<int64_t>(fs::file_size(path));
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(size - 400'000);
    file << std::string(400'000, '\xFF');  // NaN
  }
  EXPECT_FALSE(LoadEngine({.model_dir = dir.path()}).ok());
  const auto summary = SummariseModel(dir.path());
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->num_parameters, 130'496);
}

TEST(ModelSummaryTest, RefusesWhatCannotBeLoaded) {
  EXPECT_TRUE(absl::IsNotFound(SummariseModel("/nowhere").status()));
  const auto changed = [](const std::string& tensor, const char* dtype,
                          std::vector<int64_t> shape) {
    TempDir dir;
    fs::copy(CaseDir("gla_small"), dir.path());
    const auto source = Checkpoint::Open(CaseDir("gla_small"));
    SafetensorsWriter writer;
    for (const auto& [name, info] : source->tensors()) {
      if (name != tensor) {
        writer.Add(name, std::string(DTypeName(info.dtype)), info.shape,
                   std::string(info.bytes));
      } else if (dtype != nullptr) {
        int64_t bytes = 4;
        for (const int64_t dimension : shape) bytes *= dimension;
        writer.Add(name, dtype, shape,
                   std::string(static_cast<size_t>(bytes), '\0'));
      }
    }
    dir.Write("model.safetensors", writer.File());
    return std::string(SummariseModel(dir.path()).status().message());
  };
  EXPECT_THAT(changed("lm_head.weight", nullptr, {}),
              HasSubstr("'lm_head.weight' is missing"));
  EXPECT_THAT(changed("lm_head.weight", "F32", {255, 64}),
              HasSubstr("'lm_head.weight' has shape"));
  EXPECT_THAT(changed("model.norm.weight", "I32", {64}),
              HasSubstr("'model.norm.weight' has dtype I32"));
  EXPECT_THAT(changed("model.layers.0.attn.gk_proj.1.bias", "F32", {31}),
              HasSubstr("gk_proj.1.bias' has shape"));
}

TEST(ModelSummaryTest, NamesTensorsThatAreNotUsed) {
  TempDir dir;
  fs::copy(CaseDir("gla_small"), dir.path());
  const auto source = Checkpoint::Open(CaseDir("gla_small"));
  SafetensorsWriter writer;
  for (const auto& [name, info] : source->tensors()) {
    writer.Add(name, std::string(DTypeName(info.dtype)), info.shape,
               std::string(info.bytes));
  }
  writer.Add("extra", "I32", {3}, std::string(12, '\0'));
  dir.Write("model.safetensors", writer.File());
  const auto summary = SummariseModel(dir.path());
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_THAT(summary->unused_tensors, ElementsAre("extra"));
  EXPECT_EQ(summary->unused_bytes, 12);
  EXPECT_THAT(summary->bytes_by_dtype, ElementsAre(Pair("F32", 521'984)));
}

}  // namespace
}  // namespace reprise::model_summary_test
