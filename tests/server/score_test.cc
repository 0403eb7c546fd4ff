// Texts that are only scored: turns whose log-probabilities are streamed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "server/scheduler.h"
#include "server/turn.h"
#include "tests/support/reference_completion.h"
#include "tests/support/scheduler_rig.h"

namespace reprise {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

std::vector<int32_t> SomeTokens(size_t count, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 32);
  return tokens;
}

TurnRequest ScoreTurn(std::vector<int32_t> tokens) {
  TurnRequest request;
  request.prompt = std::move(tokens);
  request.max_new_tokens = 0;
  request.want_text = false;
  request.prompt_logprobs = PromptLogprobs::kStreamed;
  return request;
}

SchedulerRig::Options Rows(int64_t prefill_rows) {
  SchedulerRig::Options options;
  options.scheduler.prefill_rows = prefill_rows;
  return options;
}

TEST(ScoreTest, EveryTokenButTheFirstIsScored) {
  SchedulerRig rig(Rows(64));
  for (const size_t size : {2, 64, 65, 66, 129, 200}) {
    const std::vector<int32_t> tokens = SomeTokens(size);
    TurnRequest request = ScoreTurn(tokens);
    request.logprobs = 2;
    Answer answer = rig.Run(std::move(request));
    EXPECT_EQ(answer.status, absl::OkStatus());
    EXPECT_EQ(answer.started->prompt_tokens, static_cast<int64_t>(size));
    ASSERT_THAT(answer.logprobs[0], SizeIs(size - 1));
    double worst = 0;
    for (size_t i = 1; i < size; ++i) {
      const SampledToken& scored = answer.logprobs[0][i - 1];
      EXPECT_EQ(scored.token, tokens[i]);
      EXPECT_THAT(scored.top, SizeIs(2));
      const std::vector<float> logits =
          ReferenceLogits(std::span(tokens).first(i));
      double total = 0;
      for (const float logit : logits) total += std::exp(double{logit});
      worst = std::max(worst, std::abs(logits[tokens[i]] - std::log(total) -
                                       scored.logprob));
    }
    EXPECT_LT(worst, 1e-6);  // half a unit in the last place of a float near 8
    EXPECT_THAT(answer.ids[0], IsEmpty());
    EXPECT_EQ(answer.text(), "");
  }
  EXPECT_EQ(rig.sessions->num_free_slots(), rig.sessions->num_slots());
}

// Neither the size of the steps nor what else is in them.
TEST(ScoreTest, ScoresDoNotDependOnChunksAndBatchMates) {
  const std::vector<int32_t> tokens = SomeTokens(333);
  std::vector<std::vector<float>> runs;
  for (const int64_t rows : {64, 128, 448}) {
    for (const bool mates : {false, true}) {
      SchedulerRig::Options options = Rows(rows);
      options.engine.cuts_matter = true;
      SchedulerRig rig(std::move(options));
      if (mates) {
        rig.Submit(MakeTurn("a", SomeTokens(100, 2), 30));
        rig.Submit(ScoreTurn(SomeTokens(90, 3)));
        rig.Submit(MakeTurn("", SomeTokens(10, 4), 30));
      }
      std::vector<float> scores;
      Answer answer = rig.Run(ScoreTurn(tokens));
      for (const SampledToken& token : answer.logprobs[0]) {
        scores.push_back(token.logprob);
      }
      runs.push_back(std::move(scores));
    }
  }
  ASSERT_THAT(runs[0], SizeIs(332));
  for (const std::vector<float>& run : runs) EXPECT_EQ(run, runs[0]);
}

TEST(ScoreTest, ScoresAreThePromptLogprobsOfACompletion) {
  SchedulerRig rig(Rows(64));
  const std::vector<int32_t> tokens = SomeTokens(150);
  TurnRequest completion = MakeTurn("", tokens, 1);
  completion.prompt_logprobs = PromptLogprobs::kWithStarted;
  const Answer generated = rig.Run(completion);
  Answer scored = rig.Run(ScoreTurn(tokens));
  ASSERT_THAT(scored.logprobs[0], SizeIs(149));
  ASSERT_THAT(generated.started->prompt_logprobs, SizeIs(149));
  for (size_t i = 0; i < 149; ++i) {
    EXPECT_EQ(scored.logprobs[0][i].logprob,
              generated.started->prompt_logprobs[i].logprob);
  }
}

TEST(ScoreTest, ScoresComeAfterEachStep) {
  SchedulerRig rig(Rows(64));
  auto stream = rig.Submit(ScoreTurn(SomeTokens(200)));
  rig.Round();  // leaves the queue
  size_t before = 0;
  for (const size_t rows : {64, 64, 64, 7}) {
    ASSERT_TRUE(rig.Round());
    Answer answer;
    answer.started = StartedEvent();  // read in the first round
    while (std::optional<StreamEvent> event = stream->Pop()) {
      if (auto* delta = std::get_if<DeltaEvent>(&*event)) {
        answer.deltas.push_back(std::move(*delta));
      }
    }
    ASSERT_THAT(answer.deltas, SizeIs(1)) << before;
    EXPECT_THAT(answer.deltas[0].logprobs, SizeIs(rows));
    before += rows;
  }
  EXPECT_TRUE(stream->FinalStatus().has_value());
}

TEST(ScoreTest, AFullStreamPausesTheTextAndNothingElse) {
  SchedulerRig rig(Rows(64));
  auto scored = rig.Submit(ScoreTurn(SomeTokens(1000)), /*max_deltas=*/1);
  auto other = rig.Submit(MakeTurn("", SomeTokens(100, 2), 20));
  for (int i = 0; i < 60; ++i) rig.Round();
  EXPECT_TRUE(other->FinalStatus().has_value() || other->closed());
  EXPECT_FALSE(scored->closed());
  EXPECT_TRUE(scored->full());
  Answer answer;
  for (int i = 0; i < 100 && !scored->closed(); ++i) {
    answer.Read(*scored);
    rig.Round();
  }
  answer.Read(*scored);
  EXPECT_EQ(answer.status, absl::OkStatus());
  EXPECT_THAT(answer.logprobs[0], SizeIs(999));
  Answer rest;
  rest.Read(*other);
  EXPECT_THAT(rest.ids[0], SizeIs(20));
}

TEST(ScoreTest, CompletionsComeFirst) {
  SchedulerRig rig(Rows(64));
  auto scored = rig.Submit(ScoreTurn(SomeTokens(10'000)));
  for (int i = 0; i < 4; ++i) rig.Round();
  auto other = rig.Submit(MakeTurn("", SomeTokens(129, 2), 1));
  int rounds = 0;
  for (; rounds < 100 && !other->closed(); ++rounds) rig.Round();
  // The queue, two tiles, one token; not the 150 steps of the text.
  EXPECT_LE(rounds, 6);
  EXPECT_FALSE(scored->closed());
  scored->Cancel(CancelCause::kClient);
  rig.RunUntilIdle();
}

TEST(ScoreTest, ACancelledTextEndsWithinAStepAndFreesItsSlot) {
  SchedulerRig rig(Rows(64));
  for (const CancelCause cause :
       {CancelCause::kClient, CancelCause::kDeadline, CancelCause::kShutdown}) {
    auto stream = rig.Submit(ScoreTurn(SomeTokens(5'000)));
    for (int i = 0; i < 5; ++i) rig.Round();
    stream->Cancel(cause);
    const int64_t steps = rig.engine.steps;
    rig.RunUntilIdle();
    EXPECT_EQ(rig.engine.steps, steps);
    Answer answer;
    answer.Read(*stream);
    EXPECT_FALSE(answer.logprobs[0].empty());
    EXPECT_EQ(answer.reason(), FinishReason::kCancelled);
    EXPECT_EQ(answer.status, CancelledStatus(cause, 60'000));
    EXPECT_EQ(rig.sessions->num_free_slots(), rig.sessions->num_slots());
  }
}

TEST(ScoreTest, OutputThatIsNoNumberIsAnError) {
  SchedulerRig rig(Rows(64));
  rig.engine.overflows = true;
  const Answer answer = rig.Run(ScoreTurn(SomeTokens(100)));
  EXPECT_TRUE(absl::IsInternal(*answer.status)) << *answer.status;
  EXPECT_THAT(answer.deltas, IsEmpty());
  EXPECT_EQ(rig.sessions->num_free_slots(), rig.sessions->num_slots());
}

}  // namespace
}  // namespace reprise
