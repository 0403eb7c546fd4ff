#include "server/token_stream.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <variant>

namespace reprise {
namespace {

DeltaEvent TextDelta(std::string text) {
  DeltaEvent delta;
  delta.text = std::move(text);
  return delta;
}

TEST(TokenStreamTest, GivesEventsInOrderThenTheStatus) {
  TokenStream stream;
  EXPECT_FALSE(stream.Pop().has_value());
  StartedEvent started;
  started.prompt_tokens = 3;
  stream.Push(started);
  stream.Push(TextDelta("a"));
  stream.Push(FinishedEvent{});
  stream.Close(absl::OkStatus());
  EXPECT_EQ(std::get<StartedEvent>(*stream.Pop()).prompt_tokens, 3);
  EXPECT_EQ(std::get<DeltaEvent>(*stream.Pop()).text, "a");
  EXPECT_FALSE(stream.FinalStatus().has_value());  // an event is left
  EXPECT_TRUE(std::holds_alternative<FinishedEvent>(*stream.Pop()));
  EXPECT_FALSE(stream.Pop().has_value());
  EXPECT_EQ(stream.FinalStatus(), absl::OkStatus());
}

TEST(TokenStreamTest, IsFullWithAsManyDeltasAsItHolds) {
  TokenStream stream(/*max_deltas=*/2);
  stream.Push(StartedEvent{});  // does not count
  stream.Push(TextDelta("a"));
  EXPECT_FALSE(stream.full());
  stream.Push(TextDelta("b"));
  EXPECT_TRUE(stream.full());
  stream.Push(FinishedEvent{});  // fits all the same
  stream.Pop();
  EXPECT_TRUE(stream.full());  // that was Started
  stream.Pop();
  EXPECT_FALSE(stream.full());
}

TEST(TokenStreamTest, OnlyTheFirstEndCounts) {
  TokenStream stream;
  stream.Close(absl::AbortedError("first"));
  stream.Close(absl::OkStatus());
  stream.Push(TextDelta("late"));
  EXPECT_FALSE(stream.Pop().has_value());
  EXPECT_EQ(stream.FinalStatus(), absl::AbortedError("first"));
}

TEST(TokenStreamTest, OnlyTheFirstCancelCauseCounts) {
  TokenStream stream;
  EXPECT_FALSE(stream.cancelled().has_value());
  stream.Cancel(CancelCause::kDeadline);
  stream.Cancel(CancelCause::kClient);
  EXPECT_EQ(stream.cancelled(), CancelCause::kDeadline);
}

TEST(TokenStreamTest, WakesTheReaderWhenAnEmptyBufferFillsAndAtTheEnd) {
  TokenStream stream;
  int wakeups = 0;
  stream.SetWakeup([&] { ++wakeups; });
  stream.Push(StartedEvent{});
  EXPECT_EQ(wakeups, 1);
  stream.Push(TextDelta("a"));  // the reader knows already
  EXPECT_EQ(wakeups, 1);
  stream.Pop();
  stream.Pop();
  stream.Push(TextDelta("b"));
  EXPECT_EQ(wakeups, 2);
  stream.Close(absl::OkStatus());
  EXPECT_EQ(wakeups, 3);
}

TEST(TokenStreamTest, TheReaderMayPopFromItsWakeup) {
  TokenStream stream;
  std::string text;
  stream.SetWakeup([&] {
    while (auto event = stream.Pop()) text += std::get<DeltaEvent>(*event).text;
  });
  stream.Push(TextDelta("a"));
  stream.Push(TextDelta("b"));
  EXPECT_EQ(text, "ab");
}

TEST(TokenStreamTest, TellsTheSchedulerOfRoomAndOfTheFirstCancel) {
  TokenStream stream(/*max_deltas=*/2);
  int wakeups = 0;
  stream.SetReaderWakeup([&] { ++wakeups; });
  stream.Push(TextDelta("a"));
  stream.Pop();  // was not full
  EXPECT_EQ(wakeups, 0);
  stream.Push(TextDelta("a"));
  stream.Push(TextDelta("b"));
  stream.Pop();
  EXPECT_EQ(wakeups, 1);
  stream.Pop();
  EXPECT_EQ(wakeups, 1);
  stream.Cancel(CancelCause::kClient);
  stream.Cancel(CancelCause::kClient);
  EXPECT_EQ(wakeups, 2);
}

TEST(TokenStreamTest, WorksBetweenTwoThreads) {
  constexpr int kDeltas = 2000;
  TokenStream stream(/*max_deltas=*/4);
  Mutex mu;
  CondVar changed;
  uint64_t changes = 0;
  const auto notify = [&] {
    MutexLock lock(mu);
    ++changes;
    changed.NotifyAll();
  };
  stream.SetWakeup(notify);
  stream.SetReaderWakeup(notify);
  // Reads the number of changes before it looks, so that none is missed.
  const auto wait_until = [&](auto condition) {
    while (true) {
      uint64_t seen;
      {
        MutexLock lock(mu);
        seen = changes;
      }
      if (condition()) return;
      MutexLock lock(mu);
      while (changes == seen) changed.Wait(mu);
    }
  };
  std::thread writer([&] {
    for (int i = 0; i < kDeltas; ++i) {
      wait_until([&] { return !stream.full(); });
      stream.Push(TextDelta(std::to_string(i)));
    }
    stream.Close(absl::OkStatus());
  });
  int next = 0;
  wait_until([&] {
    while (auto event = stream.Pop()) {
      EXPECT_EQ(std::get<DeltaEvent>(*event).text, std::to_string(next++));
    }
    return stream.FinalStatus().has_value();
  });
  writer.join();
  EXPECT_EQ(next, kDeltas);
}

}  // namespace
}  // namespace reprise
