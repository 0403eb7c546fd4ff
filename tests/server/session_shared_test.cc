// Two servers on one store: what one has of a session gives way to what the
// other has committed since.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/session_fixture.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;
using enum absl::StatusCode;

class SharedSessionTest : public SessionTest {
 protected:
  SharedSessionTest() {
    store_.SetShared(true);
    others_store_.SetShared(true);
    auto manager =
        SessionManager::Create(fingerprints_, layout_, kSessionVocab,
                               others_store_, metrics_, clock_, options_);
    EXPECT_TRUE(manager.ok()) << manager.status();
    other_ = *std::move(manager);
  }

  // One turn on the other server, whose state can be told by `origin`.
  void CommitOnOther(const std::string& id, uint64_t origin) {
    auto lease = other_->Acquire(
        Key(id), {.expected_revision = std::nullopt, .create = true});
    ASSERT_TRUE(lease.ok()) << lease.status();
    RunTurn(*lease, origin);
    const auto revision = other_->Commit(*std::move(lease));
    ASSERT_TRUE(revision.ok()) << revision.status();
  }

  FaultyStore others_store_{*memory_store_};
  std::unique_ptr<SessionManager> other_;
};

TEST_F(SharedSessionTest, ASlotThatIsOldIsNotUsed) {
  CommitTo("a", 1, /*origin=*/7);
  EXPECT_EQ(Place("a"), SessionPlace::kResident);
  CommitOnOther("a", /*origin=*/8);
  ExpectResumes("a", 2, ResumeSource::kStore,
                "another server has committed revision 2", /*origin=*/8);
  // And is up to date then.
  ExpectResumes("a", 2, ResumeSource::kSlot, "", /*origin=*/8);
}

// That the other one was the last to use it, or that this one was restarted,
// looks the same.
TEST_F(SharedSessionTest, WhoseASessionWasIsNotClaimedToBeKnown) {
  CommitOnOther("a", /*origin=*/8);
  ExpectResumes("a", 1, ResumeSource::kStore,
                "another server's, or from before a restart", /*origin=*/8);
}

TEST_F(SharedSessionTest, MemoryThatIsOldIsNotUsed) {
  CommitTo("a", 1, /*origin=*/7);
  ASSERT_TRUE(manager_->Suspend(Key("a")).ok());
  EXPECT_EQ(Place("a"), SessionPlace::kMemory);
  CommitOnOther("a", /*origin=*/8);
  ExpectResumes("a", 2, ResumeSource::kStore,
                "another server has committed revision 2", /*origin=*/8);
}

TEST_F(SharedSessionTest, ATurnMovesBetweenServersEveryTime) {
  for (uint64_t turn = 1; turn <= 6; turn += 2) {
    CommitTo("a", turn, /*origin=*/7);
    CommitOnOther("a", /*origin=*/7);
  }
  ExpectResumes("a", 6, ResumeSource::kStore,
                "another server has committed revision 6");
}

TEST_F(SharedSessionTest, OfTwoTurnsAtOnceOneCommits) {
  CommitTo("a", 1, /*origin=*/7);
  auto late = Acquire("a");
  ASSERT_TRUE(late.ok());
  CommitOnOther("a", /*origin=*/8);
  RunTurn(*late, /*origin=*/9);
  EXPECT_EQ(manager_->Commit(*std::move(late)).status().code(), kAborted);
  // What was refused left nothing behind.
  ExpectResumes("a", 2, ResumeSource::kStore, "its last commit failed",
                /*origin=*/8);
}

TEST_F(SharedSessionTest, ASessionThatWasMadeAgainIsAnother) {
  CommitTo("a", 1, /*origin=*/7);
  auto late = Acquire("a");
  ASSERT_TRUE(late.ok());
  clock_.AdvanceMs(1);
  ASSERT_TRUE(other_->Delete(Key("a")).ok());
  CommitOnOther("a", /*origin=*/8);  // revision 1 again
  RunTurn(*late, /*origin=*/9);
  const absl::Status refused = manager_->Commit(*std::move(late)).status();
  EXPECT_EQ(refused.code(), kAborted);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("was deleted and made again"));
  ExpectResumes("a", 1, ResumeSource::kStore, "its last commit failed",
                /*origin=*/8);
}

TEST_F(SharedSessionTest, AResidentSessionThatWasMadeAgainIsNotUsed) {
  CommitTo("a", 1, /*origin=*/7);
  clock_.AdvanceMs(1);
  ASSERT_TRUE(other_->Delete(Key("a")).ok());
  CommitOnOther("a", /*origin=*/8);
  ExpectResumes("a", 1, ResumeSource::kStore,
                "another server has committed revision 1", /*origin=*/8);
}

TEST_F(SharedSessionTest, ASessionThatTheOtherDeletedIsGone) {
  CommitTo("a", 1);
  CommitTo("b", 1);
  ASSERT_TRUE(other_->Delete(Key("a")).ok());
  ASSERT_TRUE(other_->Delete(Key("b")).ok());
  EXPECT_EQ(manager_->Get(Key("a")).status().code(), kNotFound);
  EXPECT_EQ(Acquire("a").status().code(), kNotFound);
  EXPECT_EQ(manager_->Touch(Key("b"), 1000).status().code(), kNotFound);
  EXPECT_TRUE(manager_->CreateSession(Key("b"), /*ttl_ms=*/0).ok());
  ExpectResumes("b", 0, ResumeSource::kNone, "new session");
}

TEST_F(SharedSessionTest, WhatIsSaidOfASessionIsWhatIsStored) {
  CommitTo("a", 1);
  CommitOnOther("a", /*origin=*/8);
  EXPECT_EQ(manager_->Get(Key("a"))->stored.revision, 2u);
  EXPECT_EQ(manager_->Touch(Key("a"), 5000)->stored.revision, 2u);
  EXPECT_EQ(other_->Get(Key("a"))->stored.ttl_ms, 5000);
  const auto rewound = manager_->Rewind(Key("a"), 1, std::nullopt);
  ASSERT_TRUE(rewound.ok()) << rewound.status();
  EXPECT_EQ(rewound->stored.revision, 3u);
}

TEST_F(SharedSessionTest, ASweepDoesNotDeleteWhatTheOtherHasRenewed) {
  ASSERT_TRUE(manager_->CreateSession(Key("a"), /*ttl_ms=*/1000).ok());
  clock_.AdvanceMs(2000);
  // Between this server's look and its delete.
  store_.SetHook([this](StoreCall call) {
    if (call != StoreCall::kDelete) return;
    StoredSession session = *memory_store_->GetEntry(Key("a"));
    session.expires_unix_ms = clock_.UnixMs() + 1000;
    EXPECT_TRUE(memory_store_->PutEntry(Key("a"), 0, session).ok());
  });
  manager_->Sweep();
  store_.SetHook(nullptr);
  EXPECT_TRUE(manager_->Get(Key("a")).ok());
  clock_.AdvanceMs(2000);
  other_->Sweep();
  EXPECT_EQ(manager_->Get(Key("a")).status().code(), kNotFound);
  manager_->Sweep();  // finds nothing to do
}

TEST_F(SharedSessionTest, AStoreThatCannotBeAskedLeavesTheSlotAlone) {
  CommitTo("a", 1);
  store_.FailCall(1, StoreFault::kUnavailable);
  EXPECT_EQ(Acquire("a").status().code(), kUnavailable);
  ExpectResumes("a", 1, ResumeSource::kSlot, "");
}

TEST_F(SharedSessionTest, AStoreOfItsOwnIsNotAsked) {
  store_.SetShared(false);
  CommitTo("a", 1);
  store_.FailCall(1, StoreFault::kUnavailable);
  ExpectResumes("a", 1, ResumeSource::kSlot, "");
}

}  // namespace
}  // namespace reprise
