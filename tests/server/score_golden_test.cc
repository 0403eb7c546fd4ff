// Scores of real models against logits that other implementations computed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/log.h"
#include "engine/model/safetensors.h"
#include "tests/support/model_rig.h"
#include "tools/golden/golden_case.h"

namespace reprise {
namespace {

using testing::SizeIs;

SchedulerOptions WithRows(int64_t prefill_rows) {
  return {.max_running = 4, .prefill_rows = prefill_rows};
}

TurnRequest ScoreTurn(std::span<const int32_t> tokens) {
  TurnRequest request;
  request.prompt.assign(tokens.begin(), tokens.end());
  request.max_new_tokens = 0;
  request.want_text = false;
  request.prompt_logprobs = PromptLogprobs::kStreamed;
  return request;
}

std::vector<float> Logprobs(const std::vector<SampledToken>& tokens) {
  std::vector<float> logprobs;
  for (const SampledToken& token : tokens) logprobs.push_back(token.logprob);
  return logprobs;
}

double LogSoftmax(std::span<const float> logits, int32_t token) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float logit : logits) total += std::exp(logit - highest);
  return logits[static_cast<size_t>(token)] - highest - std::log(total);
}

// The first segments of a case, and their logits.
struct Golden {
  int64_t batch = 0, length = 0, vocab = 0;
  std::vector<int32_t> ids;   // [batch, length]
  std::vector<float> logits;  // [batch, length, vocab]

  std::span<const int32_t> Row(int64_t row) const {
    return std::span(ids).subspan(static_cast<size_t>(row * length),
                                  static_cast<size_t>(length));
  }
  std::span<const float> Logits(int64_t row, int64_t position) const {
    return std::span(logits).subspan(
        static_cast<size_t>((row * length + position) * vocab),
        static_cast<size_t>(vocab));
  }
};

Golden ReadGolden(const std::string& dir) {
  const auto file = Checkpoint::OpenFile(dir + "/golden.safetensors");
  CHECK(file.ok());
  const std::vector<int64_t>& shape = file->Find("logits")->shape;
  Golden golden{shape[0], shape[1], shape[2], *file->ReadI32("input_ids"), {}};
  golden.logits.resize(static_cast<size_t>(shape[0] * shape[1] * shape[2]));
  CHECK(file->ReadF32("logits", golden.logits).ok());
  return golden;
}

class ScoreGoldenTest : public testing::TestWithParam<const char*> {
 protected:
  const std::string dir_ =
      std::string(REPRISE_TESTDATA) + "/golden/" + GetParam();
  const Golden golden_ = ReadGolden(dir_);
};

TEST_P(ScoreGoldenTest, ScoresAreThoseOfTheGoldenLogits) {
  ModelRig rig(dir_, WithRows(64));
  for (int64_t row = 0; row < golden_.batch; ++row) {
    const std::span<const int32_t> ids = golden_.Row(row);
    std::vector<Answer> answers = rig.Run({ScoreTurn(ids)});
    ASSERT_EQ(answers[0].status, absl::OkStatus());
    const std::vector<SampledToken>& scores = answers[0].logprobs[0];
    ASSERT_THAT(scores, SizeIs(golden_.length - 1));
    for (int64_t i = 1; i < golden_.length; ++i) {
      // A logit and the logarithm of the sum may both be off by the tolerance.
      EXPECT_NEAR(
          scores[static_cast<size_t>(i - 1)].logprob,
          LogSoftmax(golden_.Logits(row, i - 1), ids[static_cast<size_t>(i)]),
          2 * kGoldenLogitsTolerance)
          << "row " << row << ", token " << i;
    }
  }
}

// Bit for bit; and the same as what Generate says of its prompt.
TEST_P(ScoreGoldenTest, ScoresDoNotDependOnChunksAndBatchMates) {
  const std::span<const int32_t> ids = golden_.Row(0);
  ModelRig small(dir_, WithRows(64));
  ModelRig large(dir_, WithRows(256));
  const std::vector<float> alone =
      Logprobs(small.Run({ScoreTurn(ids)})[0].logprobs[0]);
  TurnRequest completion = ScoreTurn(ids);
  completion.max_new_tokens = 20;
  completion.prompt_logprobs = PromptLogprobs::kWithStarted;
  for (ModelRig* rig : {&small, &large}) {
    std::vector<Answer> answers =
        rig->Run({completion, ScoreTurn(ids), ScoreTurn(ids.subspan(7))});
    EXPECT_EQ(Logprobs(answers[0].started->prompt_logprobs), alone);
    EXPECT_EQ(Logprobs(answers[1].logprobs[0]), alone);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ScoreGoldenTest,
                         testing::Values("linear_attn_elu", "gla_small",
                                         "mamba2_hf", "hybrid_gdn_window",
                                         "transformer_fla"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace reprise
