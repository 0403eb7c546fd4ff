// Conversations go on while the servers that they are on stop, are killed and
// come back: each is bit for bit what it is on a server that nothing happens
// to.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/replicas_fixture.h"
#include "tests/support/environment.h"

namespace reprise {
namespace {

constexpr int kSessions = 4;

class ReplicasSoakTest : public ReplicasTest {
 protected:
  using Clock = std::chrono::steady_clock;

  // In a random order. They stay when their servers are replaced.
  std::string ShuffledAddresses(std::mt19937_64& random) const {
    std::vector<std::string> addresses = addresses_;
    std::shuffle(addresses.begin(), addresses.end(), random);
    std::string all;
    for (const std::string& address : addresses) {
      all += (all.empty() ? "" : ",") + address;
    }
    return all;
  }

  void Trouble(Clock::time_point end) {
    std::mt19937_64 random(seed_);
    int turns_at_kill = 0;
    while (Clock::now() < end) {
      Sleep(100 + random() % 600);
      const size_t victim = random() % kReplicas;
      // A turn is sent to five servers at most: on a slow machine none would
      // end if one was killed more often than turns are.
      const bool may_kill = turns_ > turns_at_kill;
      if (!may_kill || random() % 2 == 0) {
        replicas_[victim]->Signal(SIGSTOP);
        Sleep(50 + random() % 2'500);
        replicas_[victim]->Signal(SIGCONT);
        ++stops_;
      } else {
        turns_at_kill = turns_;
        replicas_[victim]->Signal(SIGKILL);
        EXPECT_EQ(replicas_[victim]->Wait(), 128 + SIGKILL);
        Replace(victim);
        ++kills_;
      }
    }
  }

  // One conversation, and the client's own record of it: the revision.
  void Converse(int number, Clock::time_point end) {
    std::mt19937_64 random(seed_ * 1'000 + static_cast<uint64_t>(number));
    const std::string id = "soak-" + std::to_string(number);
    const auto alone = alone_->NewStub();
    uint64_t revision = 0;
    while (Clock::now() < end && !HasFailure()) {
      v1::GenerateRequest request =
          ReplicaTurn(" And " + std::to_string(random() % 100) + " men said,",
                      100 + static_cast<uint32_t>(random() % 1'000), random());
      request.set_session_id(id);
      const Completion expected = Generate(*alone, request);
      ASSERT_TRUE(expected.status.ok()) << expected.status.error_message();
      const auto client = Connect(ShuffledAddresses(random));
      ASSERT_NE(client, nullptr);
      std::vector<std::string> notices;
      const Completion turn = Resuming(*client, request, {}, notices);
      SCOPED_TRACE(id + " at revision " + std::to_string(revision) + ", seed " +
                   std::to_string(seed_));
      Check(turn, expected);
      if (HasFailure()) return;
      EXPECT_EQ(turn.started.revision(), revision);
      EXPECT_GT(turn.finished.at(0).revision(), revision);
      revision = turn.finished.at(0).revision();
      ++turns_;
      if (!notices.empty()) ++resumed_;
    }
    MutexLock lock(mu_);
    revisions_[static_cast<size_t>(number)] = revision;
  }

  // An answer that was lost after its commit comes without log-probabilities.
  void Check(const Completion& turn, const Completion& expected) {
    Completion same = turn;
    if (turn.logprobs.size() < expected.logprobs.size() && turn.status.ok()) {
      EXPECT_TRUE(expected.logprobs.starts_with(turn.logprobs));
      same.logprobs = expected.logprobs;
      ++recorded_;
    }
    ExpectSameAnswer(same, expected);
  }

  static void Sleep(uint64_t milliseconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  }

  // The test labelled `long` sets 120.
  const std::chrono::seconds seconds_{
      FromEnvironment("REPRISE_SOAK_SECONDS", 8)};
  const uint64_t seed_ = FromEnvironment("REPRISE_SOAK_SEED", 1);
  std::vector<std::string> addresses_;
  Mutex mu_;
  std::vector<uint64_t> revisions_ ABSL_GUARDED_BY(mu_) =
      std::vector<uint64_t>(kSessions);
  std::atomic<int> turns_{0}, resumed_{0}, recorded_{0}, stops_{0}, kills_{0};
};

TEST_F(ReplicasSoakTest, ConversationsSurviveWhatHappensToTheServers) {
  for (size_t i = 0; i < replicas_.size(); ++i) {
    addresses_.push_back(Address(i));
  }
  const auto end = Clock::now() + seconds_;
  std::vector<std::thread> threads;
  for (int i = 0; i < kSessions; ++i) {
    threads.emplace_back([this, i, end] { Converse(i, end); });
  }
  Trouble(end);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(turns_, 0);
  EXPECT_GT(stops_ + kills_, 0);
  MutexLock lock(mu_);
  for (size_t i = 0; i < kSessions; ++i) {
    const std::string id = "soak-" + std::to_string(i);
    EXPECT_EQ(Get(*replicas_[i % kReplicas], id).revision(), revisions_[i]);
  }
  std::printf(
      "%lld s: %d turns, of them %d resumed and %d told again; %d stops, %d "
      "kills\n",
      static_cast<long long>(seconds_.count()), turns_.load(), resumed_.load(),
      recorded_.load(), stops_.load(), kills_.load());
}

}  // namespace
}  // namespace reprise
