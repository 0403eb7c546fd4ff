// Turns: leases, commits, roll-backs, and where a session resumes from.
#include "server/session_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/server/session_fixture.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using enum absl::StatusCode;
using SessionManagerTest = SessionTest;

TEST_F(SessionManagerTest, ANewSessionStartsAtZeroAndIsStoredByItsFirstCommit) {
  EXPECT_EQ(Acquire("s").status().code(), kNotFound);
  auto lease = Acquire("s", /*create=*/true);
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_FALSE(lease->stateless());
  EXPECT_EQ(lease->source(), ResumeSource::kNone);
  EXPECT_EQ(lease->resume_reason(), "new session");
  EXPECT_EQ(ReadState(*lease), StateOf(7, 0));
  EXPECT_EQ(lease->record().revision, 0u);
  EXPECT_EQ(lease->record().position, 0);
  EXPECT_FALSE(lease->record().pending_token.has_value());
  EXPECT_EQ(manager_->Get(Key("s")).status().code(), kNotFound);

  RunTurn(*lease, 7);
  const auto revision = manager_->Commit(*std::move(lease));
  ASSERT_TRUE(revision.ok()) << revision.status();
  EXPECT_EQ(*revision, 1u);
  const auto info = manager_->Get(Key("s"));
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->stored.id, "s");
  EXPECT_EQ(info->stored.revision, 1u);
  EXPECT_EQ(info->stored.tokens, 1u);
  EXPECT_GT(info->stored.snapshot_bytes, kStateElements * sizeof(float));
  EXPECT_EQ(info->stored.created_unix_ms, clock_.UnixMs());
  EXPECT_EQ(info->place, SessionPlace::kResident);
  EXPECT_EQ(memory_store_->GetEntry(Key("s"))->revision, 1u);
}

TEST_F(SessionManagerTest, ANewSessionThatWasNotCommittedWasNeverThere) {
  for (const bool changed : {false, true}) {
    auto lease = Acquire("s", /*create=*/true);
    ASSERT_TRUE(lease.ok());
    if (changed) RunTurn(*lease, 7);
    lease = absl::CancelledError();
    EXPECT_EQ(Acquire("s").status().code(), kNotFound);
    EXPECT_EQ(manager_->num_free_slots(), 2);
  }
}

TEST_F(SessionManagerTest, ASessionResumesFromItsSlot) {
  CommitTo("s", 3);
  ExpectResumes("s", 3, ResumeSource::kSlot, "");
  EXPECT_EQ(Metric("reprise_session_resume_seconds_count{tier=\"slot\"}"), 3);
}

TEST_F(SessionManagerTest, AnUnchangedLeaseLeavesTheSessionResident) {
  CommitTo("s", 1);
  { auto lease = Acquire("s"); }
  EXPECT_EQ(Place("s"), SessionPlace::kResident);
  ExpectResumes("s", 1, ResumeSource::kSlot, "");
}

TEST_F(SessionManagerTest, ADroppedTurnIsRolledBack) {
  CommitTo("s", 2);
  {
    auto lease = Acquire("s");
    RunTurn(*lease, 99);
    EXPECT_EQ(Place("s"), SessionPlace::kActive);
  }
  EXPECT_EQ(Place("s"), SessionPlace::kSuspended);
  EXPECT_EQ(manager_->num_free_slots(), 2);
  ExpectResumes("s", 2, ResumeSource::kStore, "its last turn was rolled back");
}

TEST_F(SessionManagerTest, ARolledBackTurnThatCameFromMemoryGoesBackToMemory) {
  CommitTo("s", 2);
  ASSERT_TRUE(manager_->Suspend(Key("s")).ok());
  {
    auto lease = Acquire("s");
    RunTurn(*lease, 99);
  }
  EXPECT_EQ(Place("s"), SessionPlace::kMemory);
  ExpectResumes("s", 2, ResumeSource::kMemory, "its last turn was rolled back");
}

TEST_F(SessionManagerTest, OneTurnAtATime) {
  CommitTo("s", 1);
  auto lease = Acquire("s");
  ASSERT_TRUE(lease.ok());
  const absl::Status second = Acquire("s").status();
  EXPECT_EQ(second.code(), kAborted);
  EXPECT_THAT(std::string(second.message()), HasSubstr("a turn is running"));
  EXPECT_EQ(manager_->Suspend(Key("s")).status().code(), kAborted);
  EXPECT_EQ(manager_->Delete(Key("s")).code(), kAborted);
  EXPECT_EQ(manager_->Touch(Key("s"), 1000).status().code(), kAborted);
  EXPECT_TRUE(manager_->Touch(Key("s"), std::nullopt).ok());
  EXPECT_TRUE(Acquire("other", /*create=*/true).ok());
  EXPECT_TRUE(manager_
                  ->Acquire({"tenant2", "s"},
                            {.expected_revision = std::nullopt, .create = true})
                  .ok());
}

TEST_F(SessionManagerTest, ATurnMayExpectARevision) {
  CommitTo("s", 2);
  const auto acquire = [this](uint64_t expected) {
    return manager_->Acquire(Key("s"), {.expected_revision = expected});
  };
  const absl::Status moved = acquire(1).status();
  EXPECT_EQ(moved.code(), kAborted);
  EXPECT_THAT(std::string(moved.message()),
              HasSubstr("is at revision 2, expected_revision is 1"));
  EXPECT_EQ(Place("s"), SessionPlace::kResident);  // and stays so
  EXPECT_EQ(acquire(2)->source(), ResumeSource::kSlot);
  ASSERT_TRUE(manager_->Suspend(Key("s")).ok());
  EXPECT_EQ(acquire(3).status().code(), kAborted);
  EXPECT_EQ(manager_->num_free_slots(), 2);
  EXPECT_EQ(acquire(2)->source(), ResumeSource::kMemory);

  EXPECT_EQ(
      manager_->Acquire(Key("new"), {.expected_revision = 1, .create = true})
          .status()
          .code(),
      kAborted);
  EXPECT_TRUE(
      manager_->Acquire(Key("new"), {.expected_revision = 0, .create = true})
          .ok());
}

TEST_F(SessionManagerTest, TheSessionUsedLeastRecentlyMakesRoom) {
  CommitTo("a", 1, 1);
  clock_.AdvanceMs(1);
  CommitTo("b", 1, 2);
  clock_.AdvanceMs(1);
  { auto lease = Acquire("a"); }  // used again
  clock_.AdvanceMs(1);
  CommitTo("c", 1, 3);
  EXPECT_EQ(Place("a"), SessionPlace::kResident);
  EXPECT_EQ(Place("b"), SessionPlace::kMemory);
  EXPECT_EQ(Place("c"), SessionPlace::kResident);
  ExpectResumes("b", 1, ResumeSource::kMemory,
                "its slot was needed for another session", 2);
  EXPECT_EQ(Place("a"), SessionPlace::kMemory);
}

TEST_F(SessionManagerTest, WithoutRoomInMemoryASessionResumesFromTheStore) {
  CommitTo("size", 1);
  const auto bytes =
      static_cast<int64_t>(manager_->Get(Key("size"))->stored.snapshot_bytes);
  options_.memory_tier_bytes = bytes;  // one snapshot
  Restart();
  for (const char* id : {"a", "b", "c", "d"}) {
    CommitTo(id, 1);
    clock_.AdvanceMs(1);
  }
  EXPECT_EQ(Place("a"), SessionPlace::kSuspended);
  EXPECT_EQ(Place("b"), SessionPlace::kMemory);
  EXPECT_EQ(Metric("reprise_snapshot_store_bytes{tier=\"memory\"}"), bytes);
  ExpectResumes("a", 1, ResumeSource::kStore,
                "its slot was needed for another session; other snapshots "
                "took its place in memory");

  options_.memory_tier_bytes = 0;
  Restart();
  CommitTo("e", 1);
  ASSERT_TRUE(manager_->Suspend(Key("e")).ok());
  EXPECT_EQ(Place("e"), SessionPlace::kSuspended);
  ExpectResumes("e", 1, ResumeSource::kStore, "it was suspended");
}

TEST_F(SessionManagerTest, SizesAreOfTheSnapshotsThatTheStoreTakes) {
  CommitTo("a", 2);
  const auto bytes =
      static_cast<double>(manager_->Get(Key("a"))->stored.snapshot_bytes);
  ASSERT_TRUE(manager_->Suspend(Key("a")).ok());
  EXPECT_EQ(Metric("reprise_snapshot_write_seconds_count{tier=\"store\"}"), 2);
  EXPECT_EQ(Metric("reprise_snapshot_write_seconds_count{tier=\"memory\"}"), 1);
  const std::string labels = "{model=\"test\",encoding=\"f32\"}";
  EXPECT_EQ(Metric("reprise_snapshot_size_bytes_count" + labels), 2);
  EXPECT_EQ(Metric("reprise_snapshot_size_bytes_sum" + labels), 2 * bytes);
}

TEST_F(SessionManagerTest, LeasedSlotsAreNeverTaken) {
  auto a = Acquire("a", /*create=*/true);
  auto b = manager_->AcquireStateless();
  ASSERT_TRUE(a.ok() && b.ok());
  const absl::Status full = Acquire("c", /*create=*/true).status();
  EXPECT_EQ(full.code(), kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("all 2 slots"));
  EXPECT_EQ(manager_->AcquireStateless().status().code(), kResourceExhausted);
  b = absl::CancelledError();
  EXPECT_TRUE(Acquire("c", /*create=*/true).ok());
}

TEST_F(SessionManagerTest, AStatelessRequestGetsAZeroedSlotAndMayEvict) {
  CommitTo("a", 1);
  CommitTo("b", 1);
  auto lease = manager_->AcquireStateless();
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_TRUE(lease->stateless());
  EXPECT_EQ(lease->source(), ResumeSource::kNone);
  EXPECT_EQ(ReadState(*lease), StateOf(7, 0));
  EXPECT_EQ(lease->record().position, 0);
  EXPECT_EQ(Metric("reprise_state_pool_used_ratio{tier=\"slot\"}"), 1);
  lease = absl::CancelledError();
  EXPECT_EQ(manager_->num_free_slots(), 1);
}

TEST_F(SessionManagerTest, ALeaseMayBeMovedOverAnother) {
  CommitTo("a", 1, 1);
  CommitTo("b", 1, 2);
  SessionLease lease = *Acquire("a");
  SessionLease other = *Acquire("b");
  lease = std::move(other);
  EXPECT_FALSE(other);  // NOLINT: what a moved-from lease is
  EXPECT_TRUE(lease);
  EXPECT_EQ(lease.key().id, "b");
  EXPECT_EQ(Place("a"), SessionPlace::kResident);
  EXPECT_EQ(Place("b"), SessionPlace::kActive);
  lease = SessionLease();
  EXPECT_EQ(Place("b"), SessionPlace::kResident);
}

TEST_F(SessionManagerTest, ARestartLosesNothing) {
  CommitTo("a", 1, 1);
  CommitTo("b", 5, 2);
  CommitTo("c", 2, 3);
  Restart();
  EXPECT_EQ(manager_->num_free_slots(), 2);
  ExpectResumes("a", 1, ResumeSource::kStore, "server restarted", 1);
  ExpectResumes("b", 5, ResumeSource::kStore, "server restarted", 2);
  ExpectResumes("c", 2, ResumeSource::kStore, "server restarted", 3);
}

TEST_F(SessionManagerTest, ASnapshotOfAnotherModelIsRefusedAndStays) {
  CommitTo("s", 2);
  const ModelFingerprints original = fingerprints_;
  fingerprints_.model = 2;
  Restart();
  for (const bool create : {false, true}) {
    const absl::Status status = Acquire("s", create).status();
    EXPECT_EQ(status.code(), kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("model fingerprint"));
  }
  EXPECT_EQ(manager_->num_free_slots(), 2);
  EXPECT_EQ(Metric("reprise_snapshot_failures_total{op=\"read\","
                   "reason=\"model_mismatch\"}"),
            2);
  fingerprints_ = original;
  Restart();
  ExpectResumes("s", 2, ResumeSource::kStore, "server restarted");
}

TEST_F(SessionManagerTest, ADamagedSnapshotIsDataLossAndStays) {
  CommitTo("s", 1);
  StoredSession stored;
  std::string snapshot;
  ASSERT_TRUE(memory_store_->Get(Key("s"), &stored, &snapshot).ok());
  snapshot[60] ^= 1;
  ASSERT_TRUE(memory_store_->Put(Key("s"), 1, stored, snapshot, {}).ok());
  Restart();
  EXPECT_EQ(Acquire("s").status().code(), kDataLoss);
  EXPECT_EQ(Metric("reprise_snapshot_failures_total{op=\"read\","
                   "reason=\"checksum\"}"),
            1);
  EXPECT_EQ(manager_->num_free_slots(), 2);
  EXPECT_EQ(memory_store_->GetEntry(Key("s"))->revision, 1u);
}

TEST_F(SessionManagerTest, AnEntryOfAnotherRevisionThanItsSnapshotIsDataLoss) {
  CommitTo("s", 1);
  StoredSession stored;
  std::string snapshot;
  ASSERT_TRUE(memory_store_->Get(Key("s"), &stored, &snapshot).ok());
  stored.revision = 2;
  ASSERT_TRUE(memory_store_->Put(Key("s"), 1, stored, snapshot, {}).ok());
  ASSERT_TRUE(
      memory_store_
          ->Put(PresetKey("default", "p"), std::nullopt, stored, snapshot, {})
          .ok());
  Restart();
  const absl::Status session = Acquire("s").status();
  EXPECT_EQ(session.code(), kDataLoss);
  EXPECT_THAT(std::string(session.message()), StartsWith("session s: its"));
  const absl::Status preset =
      manager_->AcquirePreset(PresetKey("default", "p")).status();
  EXPECT_EQ(preset.code(), kDataLoss);
  EXPECT_THAT(std::string(preset.message()), StartsWith("preset p: its"));
}

TEST_F(SessionManagerTest, AFailedCommitLeavesTheLastRevision) {
  CommitTo("s", 1);
  for (const StoreFault fault :
       {StoreFault::kUnavailable, StoreFault::kNoSpace}) {
    auto lease = Acquire("s");
    ASSERT_TRUE(lease.ok());
    RunTurn(*lease, 99);
    store_.FailCall(1, fault);
    EXPECT_EQ(manager_->Commit(*std::move(lease)).status().code(),
              kUnavailable);
    EXPECT_EQ(manager_->num_free_slots(), 2);
    ExpectResumes("s", 1, ResumeSource::kStore, "its last commit failed");
  }
  EXPECT_EQ(
      Metric("reprise_snapshot_failures_total{op=\"write\",reason=\"io\"}"), 1);
  EXPECT_EQ(Metric("reprise_snapshot_failures_total{op=\"write\","
                   "reason=\"nospace\"}"),
            1);
  CommitTo("s", 2);
}

TEST_F(SessionManagerTest, AfterACommitWhoseAnswerWasLostTheStoreIsBelieved) {
  CommitTo("s", 1);
  auto lease = Acquire("s");
  RunTurn(*lease, 7);
  store_.FailCall(1, StoreFault::kLostAnswer);
  EXPECT_EQ(manager_->Commit(*std::move(lease)).status().code(), kUnavailable);
  ExpectResumes("s", 2, ResumeSource::kStore, "its last commit failed");
}

TEST_F(SessionManagerTest, OfTwoProcessesThatCommitARevisionOneWins) {
  CommitTo("s", 1);
  auto other = SessionManager::Create(fingerprints_, layout_, kSessionVocab,
                                      store_, metrics_, clock_, options_);
  ASSERT_TRUE(other.ok());
  auto loser = Acquire("s");
  auto winner = (*other)->Acquire(Key("s"), {});
  ASSERT_TRUE(loser.ok() && winner.ok());
  RunTurn(*winner, 8);
  RunTurn(*loser, 9);
  EXPECT_TRUE((*other)->Commit(*std::move(winner)).ok());
  const absl::Status status = manager_->Commit(*std::move(loser)).status();
  EXPECT_EQ(status.code(), kAborted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("stored is revision 2, expected revision 1"));
  ExpectResumes("s", 2, ResumeSource::kStore, "its last commit failed", 8);
}

TEST_F(SessionManagerTest, AStateThatHasOverflowedFailsItsOwnTurn) {
  CommitTo("s", 1);
  auto lease = Acquire("s");
  RunTurn(*lease, 7);
  const float nan = std::nanf("");
  std::memcpy(lease->slot(), &nan, sizeof(nan));
  const absl::Status status = manager_->Commit(*std::move(lease)).status();
  EXPECT_EQ(status.code(), kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not finite"));
  EXPECT_EQ(Metric("reprise_snapshot_failures_total{op=\"write\","
                   "reason=\"nonfinite\"}"),
            1);
  ExpectResumes("s", 1, ResumeSource::kStore, "its last commit failed");
}

TEST_F(SessionManagerTest, AStoreThatCannotBeReadFailsTheTurnOnly) {
  CommitTo("s", 1);
  Restart();
  store_.FailCall(1, StoreFault::kUnavailable);
  EXPECT_EQ(Acquire("s").status().code(), kUnavailable);
  EXPECT_EQ(manager_->num_free_slots(), 2);
  ExpectResumes("s", 1, ResumeSource::kStore, "server restarted");
}

// The hook runs in the middle of the manager's own calls of the store: that
// these come back shows that no lock is held over them.
TEST_F(SessionManagerTest, WhileTheStoreWorksOthersAreServed) {
  CommitTo("s", 1);
  int calls = 0;
  const auto look_around = [&](StoreCall call) {
    if (call != StoreCall::kPut && call != StoreCall::kGet) return;
    if (++calls > 2) return;  // not within its own calls
    EXPECT_EQ(Acquire("s").status().code(), kAborted);
    EXPECT_EQ(manager_->Suspend(Key("s")).status().code(), kAborted);
    EXPECT_EQ(manager_->Delete(Key("s")).code(), kAborted);
    EXPECT_TRUE(manager_->AcquireStateless().ok());
    if (call == StoreCall::kPut) {
      const auto info = manager_->Get(Key("s"));
      ASSERT_TRUE(info.ok());
      EXPECT_EQ(info->stored.revision, 1u);
      EXPECT_EQ(info->place, SessionPlace::kActive);
    }
  };
  auto lease = Acquire("s");
  RunTurn(*lease, 7);
  store_.SetHook(look_around);
  ASSERT_TRUE(manager_->Commit(*std::move(lease)).ok());
  store_.SetHook(nullptr);
  Restart();
  store_.SetHook(look_around);
  EXPECT_TRUE(Acquire("s").ok());
  EXPECT_EQ(calls, 2);
  store_.SetHook(nullptr);
}

TEST_F(SessionManagerTest, CreateRefusesOptionsThatCannotBe) {
  const auto create = [this](const SessionManagerOptions& options) {
    return SessionManager::Create(fingerprints_, layout_, kSessionVocab, store_,
                                  metrics_, clock_, options)
        .status()
        .code();
  };
  EXPECT_EQ(create({.num_slots = 0}), kInvalidArgument);
  EXPECT_EQ(create({.memory_tier_bytes = -1}), kInvalidArgument);
  EXPECT_EQ(create({.idle_timeout_ms = 0}), kInvalidArgument);
  EXPECT_EQ(create({.max_sessions = 0}), kInvalidArgument);
  store_.FailCall(1, StoreFault::kUnavailable);
  EXPECT_EQ(create({}), kUnavailable);
}

TEST(ValidateSessionIdTest, NamesTheFieldAndTheRule) {
  EXPECT_TRUE(ValidateSessionId("a", "id").ok());
  EXPECT_TRUE(ValidateSessionId("A-z_0.9", "id").ok());
  EXPECT_TRUE(ValidateSessionId(std::string(128, 'x'), "id").ok());
  for (const std::string& id :
       {std::string(), std::string(129, 'x'), std::string(65536, 'x'),
        std::string(".hidden"), std::string("../up"), std::string("a b"),
        std::string("a\0b", 3), std::string("\xc3\xa4"), std::string("a/b")}) {
    const absl::Status status = ValidateSessionId(id, "session_id");
    EXPECT_EQ(status.code(), kInvalidArgument) << id;
    EXPECT_THAT(std::string(status.message()), StartsWith("session_id: "));
    EXPECT_THAT(std::string(status.message()), HasSubstr("a session id is"));
    EXPECT_LT(status.message().size(), 200u);
    const absl::Status preset = ValidatePresetName(id, "preset");
    EXPECT_EQ(preset.code(), kInvalidArgument) << id;
    EXPECT_THAT(std::string(preset.message()), StartsWith("preset: "));
    EXPECT_THAT(std::string(preset.message()), HasSubstr("a preset's name is"));
  }
}

}  // namespace
}  // namespace reprise
