// Requests that come again: the one that made the session's revision is
// answered from what was recorded of it, and nothing else is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/session_fixture.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;
using enum absl::StatusCode;

class SessionRepeatTest : public SessionTest {
 protected:
  absl::StatusOr<SessionLease> Ask(const std::string& request_id,
                                   uint64_t fingerprint = 1,
                                   const std::string& session = "s") {
    return manager_->Acquire(Key(session),
                             {.expected_revision = std::nullopt,
                              .create = true,
                              .request = {request_id, fingerprint}});
  }

  static TurnOutcome Outcome(const std::string& text) {
    TurnOutcome outcome;
    outcome.Add(text, {1, 2});
    outcome.reason = FinishReason::kLength;
    outcome.usage.completion_tokens = 2;
    outcome.seed = 5;
    return outcome;
  }

  // Carries the request out.
  absl::StatusOr<uint64_t> Answer(const std::string& request_id,
                                  const std::string& text,
                                  uint64_t fingerprint = 1) {
    auto lease = Ask(request_id, fingerprint);
    if (!lease.ok()) return lease.status();
    EXPECT_EQ(lease->repeated(), nullptr);
    RunTurn(*lease, 7);
    return manager_->Commit(*std::move(lease), Outcome(text));
  }

  void ExpectRepeats(const std::string& request_id, const std::string& text,
                     uint64_t revision) {
    const auto lease = Ask(request_id);
    ASSERT_TRUE(lease.ok()) << lease.status();
    ASSERT_NE(lease->repeated(), nullptr);
    EXPECT_FALSE(*lease);
    EXPECT_EQ(lease->repeated()->text, text);
    EXPECT_EQ(lease->repeated()->token_ids, (std::vector<int32_t>{1, 2}));
    EXPECT_EQ(lease->repeated()->reason, FinishReason::kLength);
    EXPECT_EQ(lease->repeated()->usage.completion_tokens, 2);
    EXPECT_EQ(lease->repeated()->seed, 5u);
    EXPECT_EQ(lease->repeated()->revision, revision);
    EXPECT_EQ(manager_->Get(Key("s"))->stored.revision, revision);
  }

  void ExpectRuns(const std::string& request_id, uint64_t fingerprint = 1) {
    const auto lease = Ask(request_id, fingerprint);
    ASSERT_TRUE(lease.ok()) << lease.status();
    EXPECT_EQ(lease->repeated(), nullptr);
    EXPECT_TRUE(*lease);
  }
};

TEST_F(SessionRepeatTest, IsAnsweredWhereverTheSessionIs) {
  ASSERT_TRUE(Answer("r", "said").ok());
  ExpectRepeats("r", "said", 1);
  EXPECT_EQ(Place("s"), SessionPlace::kResident);  // and stays so
  EXPECT_EQ(manager_->num_free_slots(), 1);
  ASSERT_TRUE(manager_->Suspend(Key("s")).ok());
  ExpectRepeats("r", "said", 1);
  EXPECT_EQ(Place("s"), SessionPlace::kMemory);
  Restart();
  ExpectRepeats("r", "said", 1);
  EXPECT_EQ(Place("s"), SessionPlace::kSuspended);
  EXPECT_EQ(
      Metric("reprise_session_operations_total{op=\"repeat\",result=\"ok\"}"),
      3);
  // The next one runs.
  ASSERT_EQ(*Answer("r2", "more"), 2u);
  ExpectRepeats("r2", "more", 2);
}

TEST_F(SessionRepeatTest, TheExpectedRevisionIsThatOfTheFirstTime) {
  CommitTo("s", 3);
  const AcquireOptions ask = {
      .expected_revision = 3, .create = false, .request = {"r", 1}};
  {
    auto lease = manager_->Acquire(Key("s"), ask);
    RunTurn(*lease, 7);
    ASSERT_TRUE(manager_->Commit(*std::move(lease), Outcome("said")).ok());
  }
  const auto again = manager_->Acquire(Key("s"), ask);
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_NE(again->repeated(), nullptr);
  EXPECT_EQ(again->repeated()->revision, 4u);
  AcquireOptions other = ask;
  other.expected_revision = 4;
  const absl::Status refused = manager_->Acquire(Key("s"), other).status();
  EXPECT_EQ(refused.code(), kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("made revision 4 of session s from revision 3, "
                        "expected_revision is 4"));
  other.expected_revision.reset();
  EXPECT_TRUE(manager_->Acquire(Key("s"), other).ok());
}

TEST_F(SessionRepeatTest, OnlyTheLastTurnIsKnown) {
  ASSERT_TRUE(Answer("r", "said").ok());
  CommitTo("s", 2);  // a request without an id
  ExpectRuns("r");
  ASSERT_TRUE(Answer("r", "said again").ok());
  ASSERT_TRUE(Answer("r2", "more").ok());
  ExpectRuns("r");
  ExpectRuns("");
}

TEST_F(SessionRepeatTest, AnotherRequestUnderTheSameIdIsRefused) {
  ASSERT_TRUE(Answer("r", "said").ok());
  for (const bool suspended : {false, true}) {
    if (suspended) {
      ASSERT_TRUE(manager_->Suspend(Key("s")).ok());
    }
    const absl::Status status = Ask("r", /*fingerprint=*/2).status();
    EXPECT_EQ(status.code(), kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("request_id: r made revision 1 of session s by "
                          "another request than this one"));
    EXPECT_EQ(Place("s"),
              suspended ? SessionPlace::kMemory : SessionPlace::kResident);
  }
}

TEST_F(SessionRepeatTest, WhileTheFirstRunsTheSecondIsAborted) {
  auto first = Ask("r");
  RunTurn(*first, 7);
  EXPECT_EQ(Ask("r").status().code(), kAborted);
  ASSERT_TRUE(manager_->Commit(*std::move(first), Outcome("said")).ok());
  ExpectRepeats("r", "said", 1);
}

TEST_F(SessionRepeatTest, WhatWasNotCommittedRunsAgain) {
  {
    auto lease = Ask("r");
    RunTurn(*lease, 7);
  }
  ExpectRuns("r");
  auto lease = Ask("r");
  RunTurn(*lease, 7);
  store_.FailCall(1, StoreFault::kUnavailable);
  EXPECT_FALSE(manager_->Commit(*std::move(lease), Outcome("lost")).ok());
  ExpectRuns("r");
}

// The case it is for: the client was told of a failure, and the turn is there.
TEST_F(SessionRepeatTest, ACommitWhoseAnswerWasLostIsNotCarriedOutTwice) {
  auto lease = Ask("r");
  RunTurn(*lease, 7);
  store_.FailCall(1, StoreFault::kLostAnswer);
  EXPECT_EQ(
      manager_->Commit(*std::move(lease), Outcome("said")).status().code(),
      kUnavailable);
  ExpectRepeats("r", "said", 1);
}

TEST_F(SessionRepeatTest, ATurnThatWasTakenBackRunsAgain) {
  CommitTo("s", 1);
  ASSERT_TRUE(Answer("r", "said").ok());
  ASSERT_TRUE(manager_->Rewind(Key("s"), 1, std::nullopt).ok());
  ExpectRuns("r");
}

TEST_F(SessionRepeatTest, AForkDoesNotAnswerForItsOriginal) {
  ASSERT_TRUE(Answer("r", "said").ok());
  ASSERT_TRUE(manager_->Fork(Key("s"), Key("t"), std::nullopt).ok());
  const auto lease = Ask("r", 1, "t");
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(lease->repeated(), nullptr);
  ExpectRepeats("r", "said", 1);
}

TEST_F(SessionRepeatTest, ATouchKeepsIt) {
  ASSERT_TRUE(Answer("r", "said").ok());
  ASSERT_TRUE(manager_->Touch(Key("s"), 60'000).ok());
  ExpectRepeats("r", "said", 1);
  Restart();
  ASSERT_TRUE(manager_->Touch(Key("s"), 90'000).ok());
  ExpectRepeats("r", "said", 1);
}

TEST_F(SessionRepeatTest, AnAnswerThatWasTooLongIsSaidToBe) {
  ASSERT_TRUE(Answer("r", std::string(kMaxOutcomeBytes, 'x')).ok());
  const absl::Status status = Ask("r").status();
  EXPECT_EQ(status.code(), kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("made revision 1 of session s; its answer had 1048584 "
                        "bytes, more than are kept to be repeated, 1048576"));
  ExpectRuns("r2");
}

TEST_F(SessionRepeatTest, ADamagedRecordIsDataLossForThatRequestOnly) {
  ASSERT_TRUE(Answer("r", "said").ok());
  StoredSession stored;
  std::string snapshot;
  ASSERT_TRUE(memory_store_->Get(Key("s"), &stored, &snapshot).ok());
  std::string outcome = *memory_store_->GetOutcome(Key("s"), 1);
  outcome[3] ^= 1;
  ASSERT_TRUE(memory_store_
                  ->Put(Key("s"), 1, stored, snapshot,
                        {.checkpoint_bytes = 0, .outcome = outcome})
                  .ok());
  EXPECT_EQ(Ask("r").status().code(), kDataLoss);
  ExpectRuns("r2");
}

TEST_F(SessionRepeatTest, AStoreThatCannotBeReadIsUnavailable) {
  ASSERT_TRUE(Answer("r", "said").ok());
  store_.FailCall(1, StoreFault::kUnavailable);
  EXPECT_EQ(Ask("r").status().code(), kUnavailable);
  EXPECT_EQ(Place("s"), SessionPlace::kResident);
  ExpectRepeats("r", "said", 1);
}

TEST_F(SessionRepeatTest, AnotherProcessKnowsItToo) {
  auto other = SessionManager::Create(fingerprints_, layout_, kSessionVocab,
                                      store_, metrics_, clock_, options_);
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE(Answer("r", "said").ok());
  const auto lease = (*other)->Acquire(
      Key("s"),
      {.expected_revision = std::nullopt, .create = true, .request = {"r", 1}});
  ASSERT_TRUE(lease.ok());
  ASSERT_NE(lease->repeated(), nullptr);
  EXPECT_EQ(lease->repeated()->text, "said");
}

}  // namespace
}  // namespace reprise
