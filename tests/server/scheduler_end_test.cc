// Ends that come from outside: cancels, deadlines, time limits, readers that do
// not read, stores that do not write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/scheduler.h"
#include "tests/support/reference_completion.h"
#include "tests/support/scheduler_rig.h"

namespace reprise {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// A turn with a few tiles of prompt and stop strings that hold back text.
TurnRequest LongTurn(const std::string& id, uint64_t seed) {
  TurnRequest request = MakeTurn(id, {}, 30, seed);
  for (int32_t i = 0; i < 150; ++i) request.prompt.push_back(2 + i % 30);
  request.stop = {"never there", "abcdX"};
  return request;
}

SchedulerRig::Options SmallSteps() {
  SchedulerRig::Options options;
  options.scheduler.prefill_rows = 64;
  return options;
}

// Whatever round the cancel comes in: kept, the session has what was shown;
// rolled back, it is as it was.
TEST(SchedulerEndTest, ACancelInAnyRoundKeepsWhatWasShownOrNothing) {
  int kept_some = 0;
  for (const bool keep : {true, false}) {
    for (int round = 0; round < 45; ++round) {
      SchedulerRig rig(SmallSteps());
      rig.Run(MakeTurn("s", rig.Encode("ab cd"), 5));
      const auto before = rig.Look("s");
      TurnRequest request = LongTurn("s", /*seed=*/7);
      request.keep_on_cancel = keep;
      auto stream = rig.Submit(request);
      for (int i = 0; i < round; ++i) rig.Round();
      stream->Cancel(CancelCause::kClient);
      rig.RunUntilIdle();
      Answer answer;
      answer.Read(*stream);
      const auto after = rig.Look("s");
      ASSERT_TRUE(answer.status.has_value());
      if (answer.status->ok()) {  // it was done before
        EXPECT_NE(answer.reason(), FinishReason::kCancelled);
        continue;
      }
      EXPECT_TRUE(absl::IsCancelled(*answer.status));
      const bool committed =
          !answer.finished.empty() && answer.finished.at(0).revision;
      if (!committed) {
        EXPECT_EQ(after.tokens, before.tokens);
        EXPECT_EQ(after.record.revision, 1u);
        if (keep) {
          EXPECT_EQ(answer.text(), "");
        }
        continue;
      }
      EXPECT_TRUE(keep);
      ++kept_some;
      EXPECT_EQ(answer.reason(), FinishReason::kCancelled);
      EXPECT_EQ(after.record.revision, 2u);
      std::vector<int32_t> expected = before.tokens;
      expected.insert(expected.end(), request.prompt.begin(),
                      request.prompt.end());
      expected.insert(expected.end(), answer.ids[0].begin(),
                      answer.ids[0].end());
      EXPECT_EQ(after.tokens, expected);
      EXPECT_EQ(answer.text(), rig.TextOf(answer.ids[0]));
    }
  }
  EXPECT_GT(kept_some, 20);
}

TEST(SchedulerEndTest, TheCauseOfACancelIsInTheStatusAndTheMetrics) {
  const std::vector<std::pair<CancelCause, absl::StatusCode>> cases = {
      {CancelCause::kClient, absl::StatusCode::kCancelled},
      {CancelCause::kDisconnect, absl::StatusCode::kCancelled},
      {CancelCause::kDeadline, absl::StatusCode::kDeadlineExceeded},
      {CancelCause::kSlowReader, absl::StatusCode::kResourceExhausted},
      {CancelCause::kShutdown, absl::StatusCode::kUnavailable}};
  for (const auto& [cause, code] : cases) {
    SchedulerRig rig;
    auto stream = rig.Submit(MakeTurn("", {4}, 1000));
    for (int i = 0; i < 5; ++i) rig.Round();
    stream->Cancel(cause);
    rig.Round();
    Answer answer;
    answer.Read(*stream);
    EXPECT_EQ(answer.status->code(), code);
    EXPECT_EQ(answer.reason(), FinishReason::kCancelled);
    EXPECT_TRUE(rig.scheduler->idle());
    EXPECT_EQ(rig.sessions->num_free_slots(), rig.sessions->num_slots());
    EXPECT_THAT(
        rig.metrics.Scrape(),
        testing::ContainsRegex(
            "reprise_cancellations_total.*cause=\"" +
            std::string(cause == CancelCause::kClient       ? "client"
                        : cause == CancelCause::kDisconnect ? "disconnect"
                        : cause == CancelCause::kDeadline   ? "deadline"
                        : cause == CancelCause::kSlowReader ? "slow_reader"
                                                            : "shutdown") +
            "\"} 1"));
  }
}

TEST(SchedulerEndTest, ACancelledWaitingRequestNeverStarts) {
  SchedulerRig::Options options;
  options.scheduler.max_running = 1;
  SchedulerRig rig(std::move(options));
  auto running = rig.Submit(MakeTurn("", {4}, 50));
  rig.Round();
  auto waiting = rig.Submit(MakeTurn("s", {5}));
  rig.Round();
  waiting->Cancel(CancelCause::kDisconnect);
  rig.Round();
  Answer answer;
  answer.Read(*waiting);
  EXPECT_TRUE(absl::IsCancelled(*answer.status));
  EXPECT_FALSE(answer.started.has_value());
  rig.RunUntilIdle();
  EXPECT_TRUE(absl::IsNotFound(rig.sessions->Get({"", "s"}).status()));
}

TEST(SchedulerEndTest, ACancelIsAnsweredWhileTheStoreIsStillReading) {
  SchedulerRig rig;
  auto stream = rig.Submit(MakeTurn("s", {5}));
  rig.scheduler->RunOnce();  // the task to acquire waits now
  EXPECT_EQ(rig.executor.waiting(), 1u);
  stream->Cancel(CancelCause::kClient);
  rig.scheduler->RunOnce();
  Answer answer;
  answer.Read(*stream);
  EXPECT_TRUE(absl::IsCancelled(*answer.status));
  EXPECT_FALSE(rig.scheduler->idle());  // the lease is still to come
  rig.RunUntilIdle();
  EXPECT_EQ(rig.engine.steps, 0);
  EXPECT_EQ(rig.sessions->num_free_slots(), rig.sessions->num_slots());
}

TEST(SchedulerEndTest, ACancelAfterTheEndComesTooLate) {
  SchedulerRig rig;
  auto stream = rig.Submit(MakeTurn("s", {5}, 3));
  rig.scheduler->RunOnce();
  rig.executor.RunAll();
  for (int i = 0; i < 5; ++i) rig.scheduler->RunOnce();
  EXPECT_EQ(rig.executor.waiting(), 1u);  // the commit
  stream->Cancel(CancelCause::kClient);
  rig.RunUntilIdle();
  Answer answer;
  answer.Read(*stream);
  EXPECT_EQ(answer.status, absl::OkStatus());
  EXPECT_EQ(answer.finished.at(0).revision, 1u);
}

TEST(SchedulerEndTest, FinishedComesOnlyAfterTheCommit) {
  SchedulerRig rig;
  auto stream = rig.Submit(MakeTurn("s", {5}, 3));
  rig.scheduler->RunOnce();
  rig.executor.RunAll();
  for (int i = 0; i < 10; ++i) rig.scheduler->RunOnce();
  Answer answer;
  answer.Read(*stream);
  EXPECT_THAT(answer.ids[0], SizeIs(3));  // all deltas, and no end
  EXPECT_TRUE(answer.finished.empty());
  EXPECT_FALSE(answer.status.has_value());
  rig.RunUntilIdle();
  answer.Read(*stream);
  EXPECT_EQ(answer.finished.at(0).revision, 1u);
}

TEST(SchedulerEndTest, AFailedCommitIsTheStatusAndTheSessionIsAsItWas) {
  SchedulerRig rig;
  rig.Run(MakeTurn("s", {4, 5}, 3));
  const auto before = rig.Look("s");
  auto stream = rig.Submit(MakeTurn("s", {6}, 3));
  rig.Round();
  rig.executor.RunAll();
  while (rig.executor.waiting() == 0) rig.scheduler->RunOnce();
  rig.store.FailCall(1, StoreFault::kUnavailable);
  rig.RunUntilIdle();
  Answer answer;
  answer.Read(*stream);
  EXPECT_TRUE(absl::IsUnavailable(*answer.status));
  EXPECT_TRUE(answer.finished.empty());
  EXPECT_EQ(rig.Look("s").tokens, before.tokens);
  EXPECT_EQ(rig.Look("s").record.revision, 1u);
}

TEST(SchedulerEndTest, AStoreThatDoesNotReadIsTheStatus) {
  SchedulerRig rig;
  rig.store.FailWithProbability(1);
  EXPECT_TRUE(absl::IsUnavailable(*rig.Run(MakeTurn("s", {4})).status));
}

TEST(SchedulerEndTest, ACancelledCompletionOfSeveralEndsAllOfThem) {
  for (int rounds : {2, 3, 8}) {
    SchedulerRig rig(SmallSteps());
    TurnRequest request = LongTurn("", /*seed=*/1);
    request.n = 4;
    request.prompt_logprobs = PromptLogprobs::kWithStarted;
    auto stream = rig.Submit(request);
    for (int i = 0; i < rounds; ++i) rig.Round();
    stream->Cancel(CancelCause::kClient);
    rig.RunUntilIdle();
    Answer answer;
    answer.Read(*stream);
    EXPECT_THAT(answer.finished, SizeIs(4));
    EXPECT_TRUE(absl::IsCancelled(*answer.status));
    EXPECT_EQ(rig.sessions->num_free_slots(), rig.sessions->num_slots());
  }
}

TEST(SchedulerEndTest, TheTimeLimitEndsATurnAndKeepsIt) {
  SchedulerRig rig;
  TurnRequest request = MakeTurn("s", {5, 6}, 1000);
  request.time_limit_ms = 100;
  rig.engine.before_step = [&](std::span<const StepSegment> segments) {
    rig.trace.Watch(rig.engine, segments);
    rig.clock.AdvanceMs(10);
  };
  Answer answer = rig.Run(request);
  EXPECT_EQ(answer.status, absl::OkStatus());
  EXPECT_EQ(answer.reason(), FinishReason::kTimeLimit);
  EXPECT_EQ(answer.finished.at(0).usage.completion_tokens, 9);  // + 1 prefill
  EXPECT_EQ(answer.finished.at(0).revision, 1u);
  EXPECT_EQ(rig.Look("s").tokens.size(), 11u);
}

TEST(SchedulerEndTest, ATimeLimitInsideThePromptChangesNothing) {
  SchedulerRig rig(SmallSteps());
  rig.Run(MakeTurn("s", {4}, 1));
  TurnRequest request = LongTurn("s", 1);
  request.time_limit_ms = 10;
  rig.engine.before_step = [&](auto) { rig.clock.AdvanceMs(10); };
  Answer answer = rig.Run(request);
  EXPECT_EQ(answer.status, absl::OkStatus());
  EXPECT_EQ(answer.reason(), FinishReason::kTimeLimit);
  EXPECT_EQ(answer.finished.at(0).revision, std::nullopt);
  EXPECT_EQ(rig.Look("s").record.revision, 1u);
}

TEST(SchedulerEndTest, AFullStreamPausesItsOwnSequenceOnly) {
  SchedulerRig rig;
  TurnRequest request = MakeTurn("", rig.Encode("a"), 40);
  request.sampling.logit_bias = {{5, 100.0f}};
  auto slow = rig.Submit(request, /*max_deltas=*/4);
  auto fast = rig.Submit(request);
  for (int i = 0; i < 60; ++i) rig.Round();
  Answer fast_answer, slow_answer;
  fast_answer.Read(*fast);
  EXPECT_EQ(fast_answer.status, absl::OkStatus());
  slow_answer.Read(*slow);
  EXPECT_THAT(slow_answer.ids[0], SizeIs(4));
  EXPECT_FALSE(slow_answer.status.has_value());
  EXPECT_TRUE(rig.Round());  // there is room again
  while (!slow_answer.status.has_value()) {
    rig.Round();
    slow_answer.Read(*slow);
  }
  EXPECT_EQ(slow_answer.ids[0], fast_answer.ids[0]);
}

TEST(SchedulerEndTest, AReaderThatDoesNotReadIsCancelledAfterTheTimeout) {
  SchedulerRig::Options options;
  options.scheduler.slow_reader_timeout_ms = 1000;
  SchedulerRig rig(std::move(options));
  TurnRequest request = MakeTurn("s", rig.Encode("a"), 40);
  auto stream = rig.Submit(request, /*max_deltas=*/2);
  for (int i = 0; i < 60; ++i) rig.Round();
  rig.clock.AdvanceMs(999);
  EXPECT_FALSE(rig.Round());
  rig.clock.AdvanceMs(1);
  rig.RunUntilIdle();
  Answer answer;
  answer.Read(*stream);
  EXPECT_TRUE(absl::IsResourceExhausted(*answer.status));
  EXPECT_THAT(std::string(answer.status->message()), HasSubstr("1000 ms"));
  // What was shown is kept.
  EXPECT_EQ(rig.TextOf(rig.Look("s").tokens), "a" + answer.text());
}

TEST(SchedulerEndTest, ReadingInTimeStartsTheTimeoutAnew) {
  SchedulerRig::Options options;
  options.scheduler.slow_reader_timeout_ms = 1000;
  SchedulerRig rig(std::move(options));
  TurnRequest request = MakeTurn("", rig.Encode("a"), 10);
  request.sampling.logit_bias = {{5, 100.0f}};
  auto stream = rig.Submit(request, /*max_deltas=*/1);
  Answer answer;
  while (!answer.status.has_value()) {
    for (int i = 0; i < 3; ++i) rig.Round();
    rig.clock.AdvanceMs(900);
    rig.Round();
    answer.Read(*stream);
  }
  EXPECT_EQ(answer.status, absl::OkStatus());
}

TEST(SchedulerEndTest, WhatIsLeftWhenTheSchedulerEndsIsUnavailable) {
  std::vector<std::shared_ptr<TokenStream>> streams;
  SchedulerRig::Options options;
  options.scheduler.max_running = 2;
  {
    SchedulerRig rig(std::move(options));
    rig.Run(MakeTurn("s", {4}, 2));
    streams.push_back(rig.Submit(MakeTurn("s", {4}, 100)));  // runs
    for (int i = 0; i < 5; ++i) rig.Round();
    streams.push_back(rig.Submit(MakeTurn("", {4}, 100)));  // is acquiring
    rig.scheduler->RunOnce();
    streams.push_back(rig.Submit(MakeTurn("", {4}, 100)));  // waits
    rig.scheduler->RunOnce();
    rig.executor.RunAll();
    rig.scheduler = nullptr;
    EXPECT_EQ(rig.Look("s").record.revision, 1u);
  }
  for (const auto& stream : streams) {
    Answer answer;
    answer.Read(*stream);
    EXPECT_TRUE(absl::IsUnavailable(*answer.status));
    stream->Cancel(CancelCause::kClient);  // and nothing is there to wake
  }
}

// ---- A model that overflows -------------------------------------------------

TEST(SchedulerEndTest, OutputThatIsNotFiniteEndsTheTurnAndLeavesTheSession) {
  for (const float temperature : {0.0f, 1.0f}) {
    SchedulerRig rig;
    rig.Run(MakeTurn("s", rig.Encode("ab cd"), 5));
    const auto before = rig.Look("s");
    TurnRequest request = MakeTurn("s", rig.Encode("ab"), 8);
    request.sampling.temperature = temperature;
    rig.engine.overflows = true;
    Answer answer = rig.Run(request);
    ASSERT_TRUE(answer.status.has_value());
    EXPECT_TRUE(absl::IsInternal(*answer.status));
    EXPECT_THAT(answer.status->ToString(), HasSubstr("is not finite"));
    EXPECT_EQ(answer.text(), "");
    EXPECT_THAT(answer.finished, IsEmpty());
    rig.engine.overflows = false;
    const auto after = rig.Look("s");
    EXPECT_EQ(after.tokens, before.tokens);
    EXPECT_EQ(after.record.revision, 1u);
    EXPECT_TRUE(rig.Run(request).status->ok());
  }
}

TEST(SchedulerEndTest, OutputThatIsNotFiniteEndsAllCompletionsOfATurn) {
  SchedulerRig rig;
  TurnRequest request = MakeTurn("", rig.Encode("ab cd"), 50);
  request.n = 3;
  auto stream = rig.Submit(request);
  for (int i = 0; i < 6; ++i) rig.Round();
  rig.engine.overflows = true;
  rig.RunUntilIdle();
  Answer answer;
  answer.Read(*stream);
  ASSERT_TRUE(answer.status.has_value());
  EXPECT_TRUE(absl::IsInternal(*answer.status));
  EXPECT_EQ(rig.sessions->num_free_slots(), rig.sessions->num_slots());
  rig.engine.overflows = false;
  EXPECT_TRUE(rig.Run(MakeTurn("", rig.Encode("ab"), 3)).status->ok());
}

}  // namespace
}  // namespace reprise
