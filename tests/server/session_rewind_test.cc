// Going back to an earlier revision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/session_fixture.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum absl::StatusCode;

class SessionRewindTest : public SessionTest {
 protected:
  absl::StatusOr<SessionInfo> Rewind(
      const std::string& id, uint64_t revision,
      std::optional<uint64_t> expected = std::nullopt) {
    return manager_->Rewind(Key(id), revision, expected);
  }

  // Expects that the session is at `revision` now and holds, bit for bit, what
  // it held at `as_of`.
  void ExpectStateOf(const std::string& id, uint64_t revision, uint64_t as_of,
                     uint64_t origin = 7) {
    auto lease = Acquire(id);
    ASSERT_TRUE(lease.ok()) << lease.status();
    EXPECT_EQ(lease->record().revision, revision);
    EXPECT_EQ(ReadState(*lease), StateOf(origin, as_of));
  }

  std::vector<uint64_t> Checkpoints(const std::string& id) {
    std::vector<uint64_t> revisions;
    const auto info = manager_->Get(Key(id));
    EXPECT_TRUE(info.ok()) << info.status();
    for (const StoredCheckpoint& checkpoint : info->stored.checkpoints) {
      revisions.push_back(checkpoint.revision);
    }
    return revisions;
  }
};

TEST_F(SessionRewindTest, IsARevisionOfItsOwnWithTheOldState) {
  CommitTo("s", 4);
  clock_.AdvanceMs(50);
  const auto info = Rewind("s", 2);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->stored.revision, 5u);
  EXPECT_EQ(info->stored.tokens, 2u);
  EXPECT_EQ(info->stored.updated_unix_ms, clock_.UnixMs());
  EXPECT_EQ(info->place, SessionPlace::kResident);
  EXPECT_THAT(Checkpoints("s"), ElementsAre(1, 2, 3, 4));
  ExpectStateOf("s", 5, 2);
  CommitTo("s", 6);
  EXPECT_EQ(manager_->Get(Key("s"))->stored.tokens, 3u);
}

// By docs/snapshot_format.md: the revision lies at byte 40, the checksum last.
TEST_F(SessionRewindTest, TheSnapshotDiffersInItsRevisionAlone) {
  CommitTo("s", 3);
  ASSERT_TRUE(Rewind("s", 1).ok());
  std::string then = *memory_store_->GetSnapshot(Key("s"), 1);
  std::string now = *memory_store_->GetSnapshot(Key("s"), 4);
  ASSERT_EQ(then.size(), now.size());
  EXPECT_EQ(then[40], 1);
  EXPECT_EQ(now[40], 4);
  for (std::string* bytes : {&then, &now}) {
    bytes->replace(40, 8, 8, '\0');
    bytes->resize(bytes->size() - 4);
  }
  EXPECT_EQ(then, now);
}

TEST_F(SessionRewindTest, SurvivesARestart) {
  CommitTo("s", 4);
  ASSERT_TRUE(Rewind("s", 3).ok());
  Restart();
  ExpectStateOf("s", 5, 3);
  EXPECT_THAT(Checkpoints("s"), ElementsAre(1, 2, 3, 4));
  ASSERT_TRUE(Rewind("s", 1).ok());  // of before the restart
  ExpectStateOf("s", 6, 1);
}

TEST_F(SessionRewindTest, OneCanGoForwardAgain) {
  CommitTo("s", 4);
  ASSERT_TRUE(Rewind("s", 1).ok());
  ASSERT_TRUE(Rewind("s", 4).ok());
  ExpectStateOf("s", 6, 4);
  ASSERT_TRUE(Rewind("s", 5).ok());  // what the first rewind made
  ExpectStateOf("s", 7, 1);
  ASSERT_TRUE(Rewind("s", 7).ok());  // where it stands already
  ExpectStateOf("s", 8, 1);
}

TEST_F(SessionRewindTest, RevisionZeroIsTheEmptySessionAlways) {
  CommitTo("turn", 2);  // made by a turn, so it never was at revision 0
  ASSERT_TRUE(manager_->CreateSession(Key("created"), /*ttl_ms=*/0).ok());
  CommitTo("created", 2);
  for (const char* id : {"turn", "created"}) {
    const auto info = Rewind(id, 0);
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(info->stored.revision, 3u);
    EXPECT_EQ(info->stored.tokens, 0u);
    {
      auto lease = Acquire(id);
      EXPECT_EQ(ReadState(*lease), StateOf(7, 0));
      EXPECT_EQ(lease->record().position, 0);
      EXPECT_FALSE(lease->record().pending_token.has_value());
    }
    CommitTo(id, 4);
  }
}

TEST_F(SessionRewindTest, WhatIsNotKeptIsRefusedByNameAndLeavesItResident) {
  CommitTo("s", 1);
  const uint64_t bytes = manager_->Get(Key("s"))->stored.snapshot_bytes;
  options_.checkpoint_bytes = static_cast<int64_t>(bytes) * 2;
  Restart();
  CommitTo("s", 6);
  for (const uint64_t gone : {1, 2, 3, 7, 100}) {
    const absl::Status status = Rewind("s", gone).status();
    EXPECT_EQ(status.code(), kOutOfRange);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("session s: revision " + std::to_string(gone) +
                          " is not kept; there is 0 and 4..6"));
  }
  EXPECT_EQ(Place("s"), SessionPlace::kResident);
  ExpectResumes("s", 6, ResumeSource::kSlot, "");
  EXPECT_EQ(
      Metric(
          "reprise_session_operations_total{op=\"rewind\",result=\"error\"}"),
      5);
  ASSERT_TRUE(Rewind("s", 4).ok());
  EXPECT_EQ(
      Metric("reprise_session_operations_total{op=\"rewind\",result=\"ok\"}"),
      1);
}

TEST_F(SessionRewindTest, WithoutABudgetThereIsNothingToGoBackTo) {
  options_.checkpoint_bytes = 0;
  Restart();
  CommitTo("s", 3);
  EXPECT_EQ(Rewind("s", 2).status().code(), kOutOfRange);
  EXPECT_TRUE(Rewind("s", 0).ok());
}

TEST_F(SessionRewindTest, IsAbortedWhileATurnRunsAndChangesNothing) {
  CommitTo("s", 3);
  auto lease = Acquire("s");
  RunTurn(*lease, 7);
  const absl::Status status = Rewind("s", 1).status();
  EXPECT_EQ(status.code(), kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a turn is running"));
  ASSERT_TRUE(manager_->Commit(*std::move(lease)).ok());
  ExpectStateOf("s", 4, 4);
}

TEST_F(SessionRewindTest, MayExpectARevision) {
  CommitTo("s", 3);
  const absl::Status status = Rewind("s", 1, 2).status();
  EXPECT_EQ(status.code(), kAborted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("is at revision 3, expected_revision is 2"));
  EXPECT_EQ(Place("s"), SessionPlace::kResident);
  EXPECT_TRUE(Rewind("s", 1, 3).ok());
  ASSERT_TRUE(manager_->Suspend(Key("s")).ok());
  EXPECT_EQ(Rewind("s", 1, 3).status().code(), kAborted);
  EXPECT_TRUE(Rewind("s", 1, 4).ok());
}

TEST_F(SessionRewindTest, AnUnknownOrExpiredSessionIsNotFound) {
  EXPECT_EQ(Rewind("nobody", 0).status().code(), kNotFound);
  ASSERT_TRUE(manager_->CreateSession(Key("s"), /*ttl_ms=*/1000).ok());
  CommitTo("s", 2);
  clock_.AdvanceMs(900);
  ASSERT_TRUE(Rewind("s", 1).ok());  // renews it
  clock_.AdvanceMs(900);
  ASSERT_TRUE(Rewind("s", 1).ok());
  clock_.AdvanceMs(1000);
  EXPECT_EQ(Rewind("s", 1).status().code(), kNotFound);
  EXPECT_EQ(memory_store_->GetEntry(Key("s")).status().code(), kNotFound);
  CommitTo("s", 1);  // a new one, without the past of the old
  EXPECT_EQ(Rewind("s", 2).status().code(), kOutOfRange);
}

TEST_F(SessionRewindTest, AForkHasNoPastAndTheOriginalKeepsIts) {
  CommitTo("s", 3);
  ASSERT_TRUE(manager_->Fork(Key("s"), Key("t"), std::nullopt).ok());
  EXPECT_TRUE(Checkpoints("t").empty());
  EXPECT_EQ(Rewind("t", 2).status().code(), kOutOfRange);
  CommitTo("t", 4);
  ASSERT_TRUE(Rewind("t", 3).ok());  // where it began
  ExpectStateOf("t", 5, 3);
  EXPECT_THAT(Checkpoints("s"), ElementsAre(1, 2));
}

TEST_F(SessionRewindTest, WithoutAFreeSlotItSaysSoAndChangesNothing) {
  CommitTo("s", 3);
  ASSERT_TRUE(manager_->Suspend(Key("s")).ok());
  auto a = manager_->AcquireStateless();
  auto b = manager_->AcquireStateless();
  const absl::Status status = Rewind("s", 1).status();
  EXPECT_EQ(status.code(), kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("all 2 slots"));
  a = absl::CancelledError();
  ASSERT_TRUE(Rewind("s", 1).ok());
  ExpectStateOf("s", 4, 1);
}

TEST_F(SessionRewindTest, TheStoresFaultsLeaveTheSessionWhereItWas) {
  CommitTo("s", 3);
  // Its two calls: reading the old snapshot, writing the new revision.
  for (const int64_t call : {1, 2}) {
    store_.FailCall(call, StoreFault::kUnavailable);
    EXPECT_EQ(Rewind("s", 1).status().code(), kUnavailable);
    EXPECT_EQ(manager_->Get(Key("s"))->stored.revision, 3u);
    ExpectStateOf("s", 3, 3);
  }
  store_.FailCall(2, StoreFault::kLostAnswer);
  EXPECT_EQ(Rewind("s", 1).status().code(), kUnavailable);
  ExpectStateOf("s", 4, 1);  // it was done
  EXPECT_EQ(manager_->num_free_slots(), 1);
}

TEST_F(SessionRewindTest, OfTwoProcessesOneWins) {
  CommitTo("s", 3);
  auto other = SessionManager::Create(fingerprints_, layout_, kSessionVocab,
                                      store_, metrics_, clock_, options_);
  ASSERT_TRUE(other.ok());
  auto lease = Acquire("s");
  RunTurn(*lease, 7);
  ASSERT_TRUE((*other)->Rewind(Key("s"), 1, std::nullopt).ok());
  EXPECT_EQ(manager_->Commit(*std::move(lease)).status().code(), kAborted);
  ExpectStateOf("s", 4, 1);
  // And the other way round: it still believes in revision 4.
  CommitTo("s", 5);
  EXPECT_EQ((*other)->Rewind(Key("s"), 2, std::nullopt).status().code(),
            kAborted);
  ExpectStateOf("s", 5, 5);
}

TEST_F(SessionRewindTest, ACheckpointOfAnotherModelIsRefused) {
  CommitTo("s", 3);
  fingerprints_.model = 2;
  Restart();
  const absl::Status status = Rewind("s", 1).status();
  EXPECT_EQ(status.code(), kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("model fingerprint"));
  EXPECT_EQ(memory_store_->GetEntry(Key("s"))->revision, 3u);
  EXPECT_EQ(manager_->num_free_slots(), 2);
}

TEST_F(SessionRewindTest, WhileTheStoreWorksOthersAreServed) {
  CommitTo("s", 2);
  int calls = 0;
  store_.SetHook([&](StoreCall call) {
    if (call != StoreCall::kPut && call != StoreCall::kGetSnapshot) return;
    if (++calls > 2) return;  // not within its own calls
    EXPECT_EQ(Acquire("s").status().code(), kAborted);
    EXPECT_EQ(Rewind("s", 1).status().code(), kAborted);
    EXPECT_EQ(manager_->Delete(Key("s")).code(), kAborted);
    EXPECT_TRUE(manager_->AcquireStateless().ok());
    EXPECT_EQ(manager_->Get(Key("s"))->stored.revision, 2u);
  });
  EXPECT_TRUE(Rewind("s", 1).ok());
  EXPECT_EQ(calls, 2);
  store_.SetHook(nullptr);
}

}  // namespace
}  // namespace reprise
