// Before a turn starts: limits, fairness, slots, draining; and the thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "server/executor.h"
#include "server/scheduler.h"
#include "server/waker.h"
#include "tests/support/reference_completion.h"
#include "tests/support/scheduler_rig.h"

namespace reprise {
namespace {

using testing::HasSubstr;

absl::Status TrySubmit(SchedulerRig& rig, TurnRequest request) {
  return rig.scheduler->Submit(std::move(request),
                               std::make_shared<TokenStream>());
}

std::string Text(const absl::Status& status) {
  return std::string(status.message());
}

TEST(SchedulerQueueTest, RefusesMoreRequestsThanTheLimit) {
  SchedulerRig::Options options;
  options.scheduler.max_queued = 3;
  SchedulerRig rig(std::move(options));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(TrySubmit(rig, MakeTurn("", {4}, 1)).ok());
  }
  const absl::Status status = TrySubmit(rig, MakeTurn("", {4}, 1));
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(Text(status), HasSubstr("max_queued) is 3"));
  EXPECT_THAT(
      rig.metrics.Scrape(),
      HasSubstr("reprise_requests_rejected_total{reason=\"queue_full\"} 1"));
  rig.RunUntilIdle();
  EXPECT_TRUE(TrySubmit(rig, MakeTurn("", {4}, 1)).ok());
  rig.RunUntilIdle();
}

TEST(SchedulerQueueTest, RefusesMorePromptTokensThanTheLimit) {
  SchedulerRig::Options options;
  options.scheduler.max_queued_tokens = 100;
  SchedulerRig rig(std::move(options));
  const auto prompt = [](size_t size) { return std::vector<int32_t>(size, 4); };
  EXPECT_TRUE(TrySubmit(rig, MakeTurn("", prompt(60), 1)).ok());
  const absl::Status status = TrySubmit(rig, MakeTurn("", prompt(41), 1));
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(Text(status), HasSubstr("101 prompt tokens"));
  EXPECT_THAT(Text(status), HasSubstr("max_queued_tokens) is 100"));
  EXPECT_TRUE(TrySubmit(rig, MakeTurn("", prompt(40), 1)).ok());
  rig.RunUntilIdle();
}

TEST(SchedulerQueueTest, RefusesMoreCompletionsThanCanRunAtOnce) {
  SchedulerRig::Options options;
  options.sessions.num_slots = 3;
  SchedulerRig rig(std::move(options));
  TurnRequest request = MakeTurn("", {4}, 1);
  request.n = 4;
  EXPECT_TRUE(absl::IsInvalidArgument(TrySubmit(rig, request)));
  request.n = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(TrySubmit(rig, request)));
  request.n = 3;
  EXPECT_EQ(rig.Run(request).finished.size(), 3u);
  request.session = SessionKey{"", "s"};
  EXPECT_TRUE(absl::IsInvalidArgument(TrySubmit(rig, request)));
}

TEST(SchedulerQueueTest, ARequestThatWaitsTooLongIsRefused) {
  SchedulerRig::Options options;
  options.scheduler.max_running = 1;
  options.scheduler.queue_timeout_ms = 500;
  SchedulerRig rig(std::move(options));
  auto running = rig.Submit(MakeTurn("", {4}, 10'000));
  rig.Round();
  auto waiting = rig.Submit(MakeTurn("", {4}, 1));
  rig.clock.AdvanceMs(499);
  rig.Round();
  EXPECT_EQ(waiting->FinalStatus(), std::nullopt);
  rig.clock.AdvanceMs(10);
  rig.Round();
  ASSERT_TRUE(waiting->FinalStatus().has_value());
  EXPECT_TRUE(absl::IsResourceExhausted(*waiting->FinalStatus()));
  EXPECT_THAT(Text(*waiting->FinalStatus()), HasSubstr("500 ms"));
  EXPECT_THAT(
      rig.metrics.Scrape(),
      HasSubstr("reprise_requests_rejected_total{reason=\"queue_timeout\"} 1"));
  running->Cancel(CancelCause::kClient);
  rig.RunUntilIdle();
}

TEST(SchedulerQueueTest, ATimeLimitThatPassesInTheQueueIsADeadline) {
  SchedulerRig::Options options;
  options.scheduler.max_running = 1;
  SchedulerRig rig(std::move(options));
  auto running = rig.Submit(MakeTurn("", {4}, 10'000));
  rig.Round();
  TurnRequest request = MakeTurn("", {4}, 1);
  request.time_limit_ms = 30;
  auto waiting = rig.Submit(request);
  rig.clock.AdvanceMs(30);
  rig.Round();
  ASSERT_TRUE(waiting->FinalStatus().has_value());
  EXPECT_TRUE(absl::IsDeadlineExceeded(*waiting->FinalStatus()));
  running->Cancel(CancelCause::kClient);
  rig.RunUntilIdle();
}

TEST(SchedulerQueueTest, ATenantWithManyRequestsDoesNotHoldUpTheOthers) {
  SchedulerRig::Options options;
  options.scheduler.max_running = 1;
  SchedulerRig rig(std::move(options));
  std::vector<std::shared_ptr<TokenStream>> many;
  for (int i = 0; i < 50; ++i) {
    TurnRequest request = MakeTurn("", {4}, 2);
    request.tenant = "many";
    many.push_back(rig.Submit(request));
  }
  TurnRequest request = MakeTurn("", {4}, 2);
  request.tenant = "one";
  auto one = rig.Submit(request);
  Answer answer;
  while (!answer.status.has_value()) {
    rig.Round();
    answer.Read(*one);
  }
  int before = 0;
  for (const auto& stream : many) {
    Answer other;
    other.Read(*stream);
    before += other.status.has_value();
  }
  EXPECT_LE(before, 2);
  rig.RunUntilIdle();
}

TEST(SchedulerQueueTest, NoMoreCompletionsRunThanAllowed) {
  SchedulerRig::Options options;
  options.scheduler.max_running = 4;
  SchedulerRig rig(std::move(options));
  size_t most = 0;
  rig.engine.before_step = [&](std::span<const StepSegment> segments) {
    most = std::max(most, segments.size());
  };
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int i = 0; i < 12; ++i) {
    TurnRequest request = MakeTurn("", {4}, 5);
    request.n = 1 + i % 3;
    streams.push_back(rig.Submit(request));
  }
  rig.RunUntilIdle();
  EXPECT_EQ(most, 4u);
}

TEST(SchedulerQueueTest, WhoFindsNoSlotWaitsAndKeepsItsPlace) {
  SchedulerRig::Options options;
  options.sessions.num_slots = 2;
  SchedulerRig rig(std::move(options));
  // Somebody else has both slots: a resume, say.
  auto held = rig.sessions->AcquireStateless();
  auto held_too = rig.sessions->AcquireStateless();
  ASSERT_TRUE(held.ok() && held_too.ok());
  auto first = rig.Submit(MakeTurn("a", {4}, 3));
  auto second = rig.Submit(MakeTurn("b", {4}, 3));
  for (int i = 0; i < 20; ++i) {
    rig.Round();
    rig.clock.AdvanceMs(5);
  }
  EXPECT_EQ(first->FinalStatus(), std::nullopt);
  EXPECT_FALSE(rig.scheduler->idle());
  *held = SessionLease();
  rig.clock.AdvanceMs(20);
  Answer answer;
  for (int i = 0; i < 20 && !answer.status.has_value(); ++i) {
    rig.Round();
    answer.Read(*first);
    Answer other;
    other.Read(*second);
    EXPECT_FALSE(other.started.has_value() && !answer.started.has_value());
  }
  EXPECT_EQ(answer.status, absl::OkStatus());
  *held_too = SessionLease();
  rig.RunUntilIdle();
  EXPECT_EQ(second->FinalStatus().has_value(), false);  // events are left
}

TEST(SchedulerQueueTest, WaitingForASlotEndsWithTheQueueTimeout) {
  SchedulerRig::Options options;
  options.sessions.num_slots = 1;
  options.scheduler.queue_timeout_ms = 100;
  SchedulerRig rig(std::move(options));
  auto held = rig.sessions->AcquireStateless();
  ASSERT_TRUE(held.ok());
  Answer answer = rig.Run(MakeTurn("", {4}, 3));
  EXPECT_TRUE(absl::IsResourceExhausted(*answer.status));
  EXPECT_THAT(Text(*answer.status), HasSubstr("last: "));
}

TEST(SchedulerQueueTest, TooManySessionsIsRefusedAtOnce) {
  SchedulerRig::Options options;
  options.sessions.max_sessions = 1;
  SchedulerRig rig(std::move(options));
  rig.Run(MakeTurn("a", {4}, 1));
  auto stream = rig.Submit(MakeTurn("b", {4}, 1));
  for (int i = 0; i < 3; ++i) rig.Round();
  ASSERT_TRUE(stream->FinalStatus().has_value());
  EXPECT_TRUE(absl::IsResourceExhausted(*stream->FinalStatus()));
  EXPECT_THAT(Text(*stream->FinalStatus()), HasSubstr("max_sessions"));
}

TEST(SchedulerQueueTest, DrainingRefusesNewRequestsAndFinishesTheOthers) {
  SchedulerRig::Options options;
  options.scheduler.max_running = 1;
  SchedulerRig rig(std::move(options));
  auto running = rig.Submit(MakeTurn("s", {4}, 5));
  rig.Round();
  auto waiting = rig.Submit(MakeTurn("", {4}, 5));
  EXPECT_FALSE(rig.scheduler->idle());
  rig.scheduler->BeginDrain();
  EXPECT_TRUE(absl::IsUnavailable(TrySubmit(rig, MakeTurn("", {4}))));
  rig.RunUntilIdle();
  Answer first, second;
  first.Read(*running);
  second.Read(*waiting);
  EXPECT_EQ(first.status, absl::OkStatus());
  EXPECT_EQ(second.status, absl::OkStatus());
  EXPECT_THAT(
      rig.metrics.Scrape(),
      HasSubstr("reprise_requests_rejected_total{reason=\"draining\"} 1"));
}

// ---- The thread ------------------------------------------------------------

// Real threads: the scheduler's, an executor's, and clients that read, cancel
// and leave. Each survivor's answer is that of a plain loop.
TEST(SchedulerThreadTest, ClientsOnManyThreadsDoNotDisturbEachOther) {
  SchedulerRig::Options options;
  options.scheduler.max_running = 8;
  options.sessions.num_slots = 8;
  SchedulerRig rig(std::move(options));
  rig.engine.before_step = nullptr;
  auto pool = std::make_unique<ThreadPool>(/*threads=*/2);
  Scheduler scheduler(rig.engine, rig.tokenizer, *rig.sessions, *pool,
                      rig.metrics, Clock::Real(), {.max_running = 8});
  std::thread loop([&] { scheduler.Run(); });
  std::atomic<int> survivors{0};
  const auto client = [&](int number) {
    for (int i = 0; i < 15; ++i) {
      TurnRequest request = MakeTurn(
          i % 2 ? "" : "s" + std::to_string(number) + "-" + std::to_string(i),
          {4, 5, number}, 30, /*seed=*/i);
      ReferenceSession session;
      const std::vector<int32_t> expected = ReferenceTurn(request, session);
      auto stream = std::make_shared<TokenStream>(/*max_deltas=*/3);
      // shared: the last wakeup may still run when its end was seen.
      auto waker = std::make_shared<Waker>();
      stream->SetWakeup([waker] { waker->Wake(); });
      ASSERT_TRUE(scheduler.Submit(request, stream).ok());
      if (i % 5 == 4) stream->Cancel(CancelCause::kDisconnect);
      Answer answer;
      while (!answer.status.has_value()) {
        answer.Read(*stream);
        if (!answer.status.has_value()) waker->Sleep(std::nullopt);
      }
      if (!answer.status->ok()) continue;
      ++survivors;
      EXPECT_EQ(answer.ids[0], expected);
    }
  };
  std::vector<std::thread> clients;
  for (int i = 0; i < 6; ++i) clients.emplace_back(client, 2 + i);
  for (std::thread& thread : clients) thread.join();
  scheduler.BeginDrain();
  scheduler.Stop();
  loop.join();
  pool = nullptr;
  EXPECT_GE(survivors, 6 * 12);
}

}  // namespace
}  // namespace reprise
