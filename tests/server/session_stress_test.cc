// Many threads on few sessions and fewer slots, with a store that fails at
// times. Checked all along: one holder for each session, histories without gaps
// or forks, and every state exactly what the last commit of that session left.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <random>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "tests/server/session_fixture.h"

namespace reprise {
namespace {

constexpr int kThreads = 4;
constexpr int kOperations = 3000;
constexpr int kKept = 4;      // sessions that are never deleted
constexpr int kSessions = 9;  // the others are deleted, forked and expire

class SessionStressTest : public SessionTest {
 protected:
  static SessionKey KeyOf(int session) {
    return Key("s" + std::to_string(session));
  }

  void ExpectAllowed(const absl::Status& status) {
    using enum absl::StatusCode;
    const absl::StatusCode code = status.code();
    EXPECT_TRUE(code == kOk || code == kAborted || code == kUnavailable ||
                code == kResourceExhausted || code == kNotFound ||
                code == kAlreadyExists)
        << status;
  }

  void Turn(int session, std::mt19937& random) {
    const uint64_t before = session < kKept ? committed_[session].load() : 0;
    auto lease = manager_->Acquire(
        KeyOf(session), {.expected_revision = std::nullopt, .create = true});
    ExpectAllowed(lease.status());
    if (!lease.ok()) return;
    EXPECT_FALSE(held_[session].exchange(true));
    const uint64_t revision = lease->record().revision;
    const uint64_t origin = lease->record().sampler.draws;
    EXPECT_EQ(ReadState(*lease), StateOf(origin, revision));
    if (session < kKept) {
      EXPECT_GE(revision, before);  // what was committed stays
      EXPECT_TRUE(revision == 0 || origin == static_cast<uint64_t>(session));
    }
    const uint32_t what = random() % 4;
    if (what > 0) RunTurn(*lease, static_cast<uint64_t>(session));
    // Before the lease ends, since others may hold the session from then on.
    held_[session] = false;
    if (what < 2) return;  // unchanged, or rolled back
    const auto result = manager_->Commit(*std::move(lease));
    ExpectAllowed(result.status());
    if (!result.ok()) return;
    EXPECT_EQ(*result, revision + 1);
    if (session < kKept) ++committed_[session];
  }

  void Operate(int thread) {
    std::mt19937 random(thread);
    for (int i = 0; i < kOperations; ++i) {
      const int session = static_cast<int>(random() % kSessions);
      const int other =
          kKept + static_cast<int>(random() % (kSessions - kKept));
      switch (random() % 16) {
        case 0:
          ExpectAllowed(manager_->Suspend(KeyOf(session)).status());
          break;
        case 1:
          ExpectAllowed(manager_->Delete(KeyOf(other)));
          break;
        case 2:
          ExpectAllowed(
              manager_->Fork(KeyOf(session), KeyOf(other), {}).status());
          break;
        case 3:
          ExpectAllowed(manager_->Touch(KeyOf(other), random() % 50).status());
          break;
        case 4:
          clock_.AdvanceMs(random() % 20);
          manager_->Sweep();
          break;
        case 5: {
          auto lease = manager_->AcquireStateless();
          ExpectAllowed(lease.status());
          if (!lease.ok()) break;
          EXPECT_EQ(ReadState(*lease), StateOf(0, 0));
          RunTurn(*lease, 55);
          break;
        }
        case 6:
          ExpectAllowed(manager_->Get(KeyOf(session)).status());
          ExpectAllowed(manager_->List("tenant", "", 5).status());
          break;
        default:
          Turn(session, random);
      }
    }
  }

  void RunThreads(double failures) {
    options_.num_slots = 3;
    options_.idle_timeout_ms = 30;
    options_.memory_tier_bytes = 1000;  // about three snapshots
    Restart();
    store_.FailWithProbability(failures);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([this, t] { Operate(t); });
    }
    for (std::thread& thread : threads) thread.join();
    store_.FailWithProbability(0);
    manager_->SuspendAll();
    EXPECT_EQ(manager_->num_free_slots(), 3);
    // As many revisions as commits that were acknowledged: none is missing,
    // none was given out twice.
    for (int session = 0; session < kKept; ++session) {
      EXPECT_EQ(manager_->Get(KeyOf(session))->stored.revision,
                committed_[session]);
      EXPECT_GT(committed_[session], 10u);
    }
  }

  std::array<std::atomic<bool>, kSessions> held_ = {};
  // Commits that were acknowledged.
  std::array<std::atomic<uint64_t>, kKept> committed_ = {};
};

TEST_F(SessionStressTest, PromisesHoldUnderRandomOperations) {
  RunThreads(/*failures=*/0);
}

TEST_F(SessionStressTest, PromisesHoldWhileTheStoreFails) {
  RunThreads(/*failures=*/0.1);
}

// Whoever sees that no turn is at work sees what the last one has committed.
TEST_F(SessionStressTest, ASessionAtRestIsShownWithItsLastRevision) {
  constexpr uint64_t kTurns = 20'000;
  CommitTo("a", 1);
  std::atomic<uint64_t> working_on{1};
  std::atomic<bool> done{false};
  std::thread turns([&] {
    const absl::Cleanup end = [&] { done = true; };
    for (uint64_t revision = 2; revision <= kTurns; ++revision) {
      auto lease = Acquire("a");
      ASSERT_TRUE(lease.ok()) << lease.status();
      working_on = revision;
      RunTurn(*lease, /*origin=*/7);
      ASSERT_EQ(*manager_->Commit(*std::move(lease)), revision);
    }
  });
  while (!done && !HasFailure()) {
    const uint64_t before = working_on;
    const auto one = manager_->Get(Key("a"));
    const auto all = manager_->List("tenant", "", 1);
    EXPECT_TRUE(one.ok() && all.ok());
    if (!one.ok() || !all.ok()) break;
    for (const SessionInfo& info : {*one, all->at(0)}) {
      if (info.place == SessionPlace::kActive) continue;
      EXPECT_GE(info.stored.revision, before);
    }
  }
  turns.join();
  EXPECT_EQ(working_on, kTurns);
}

}  // namespace
}  // namespace reprise
