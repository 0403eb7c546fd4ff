// What happens to sessions between turns: suspending, forking, deleting,
// expiring.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/server/session_fixture.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;
using enum absl::StatusCode;
using SessionUpkeepTest = SessionTest;

TEST_F(SessionUpkeepTest, ACreatedSessionIsStoredAtOnceAndEmpty) {
  const auto info = manager_->CreateSession(Key("s"), /*ttl_ms=*/5000);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->stored.id, "s");
  EXPECT_EQ(info->stored.revision, 0u);
  EXPECT_EQ(info->stored.tokens, 0u);
  EXPECT_EQ(info->stored.ttl_ms, 5000);
  EXPECT_EQ(info->stored.expires_unix_ms, clock_.UnixMs() + 5000);
  EXPECT_EQ(info->place, SessionPlace::kSuspended);
  EXPECT_EQ(manager_->CreateSession(Key("s"), 0).status().code(),
            kAlreadyExists);
  Restart();
  {
    auto lease = Acquire("s");
    ASSERT_TRUE(lease.ok()) << lease.status();
    EXPECT_EQ(lease->source(), ResumeSource::kNone);
    EXPECT_EQ(lease->resume_reason(), "new session");
    EXPECT_EQ(ReadState(*lease), StateOf(7, 0));
    EXPECT_EQ(manager_->CreateSession(Key("s"), 0).status().code(),
              kAlreadyExists);
  }
  EXPECT_EQ(manager_->CreateSession(Key("s"), 0).status().code(),
            kAlreadyExists);
  EXPECT_EQ(Place("s"), SessionPlace::kResident);
  CommitTo("s", 1);
  EXPECT_EQ(manager_->Get(Key("s"))->stored.ttl_ms, 5000);
}

TEST_F(SessionUpkeepTest, CreatingWhatATurnIsAboutToCreateIsAborted) {
  auto lease = Acquire("s", /*create=*/true);
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(manager_->CreateSession(Key("s"), 0).status().code(), kAborted);
  EXPECT_EQ(manager_->Touch(Key("s"), std::nullopt).status().code(), kAborted);
}

TEST_F(SessionUpkeepTest, ThereIsALimitOfSessions) {
  options_.max_sessions = 3;
  Restart();
  CommitTo("a", 1);
  ASSERT_TRUE(manager_->CreateSession(Key("b"), 0).ok());
  ASSERT_TRUE(manager_->Fork(Key("a"), Key("c"), std::nullopt).ok());
  for (const absl::Status& status :
       {manager_->CreateSession(Key("d"), 0).status(),
        manager_->Fork(Key("a"), Key("d"), std::nullopt).status(),
        Acquire("d", /*create=*/true).status()}) {
    EXPECT_EQ(status.code(), kResourceExhausted);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("there are 3 sessions, max_sessions is 3"));
  }
  EXPECT_TRUE(Acquire("b").ok());
  ASSERT_TRUE(manager_->Delete(Key("c")).ok());
  EXPECT_TRUE(manager_->CreateSession(Key("d"), 0).ok());
  Restart();  // the limit counts what is stored, not what was made here
  EXPECT_EQ(Acquire("e", /*create=*/true).status().code(), kResourceExhausted);
}

TEST_F(SessionUpkeepTest, ASuspendedSessionGivesItsSlotBackAndComesFromMemory) {
  CommitTo("s", 2);
  const auto info = manager_->Suspend(Key("s"));
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->place, SessionPlace::kMemory);
  EXPECT_EQ(info->stored.revision, 2u);
  EXPECT_EQ(manager_->num_free_slots(), 2);
  EXPECT_TRUE(manager_->Suspend(Key("s")).ok());  // nothing to do
  EXPECT_EQ(manager_->Suspend(Key("none")).status().code(), kNotFound);
  ExpectResumes("s", 2, ResumeSource::kMemory, "it was suspended");
  EXPECT_EQ(Metric("reprise_session_operations_total{op=\"suspend\","
                   "result=\"ok\"}"),
            1);
}

TEST_F(SessionUpkeepTest, IdleSessionsAreSuspended) {
  CommitTo("old", 1, 1);
  clock_.AdvanceMs(300'000);
  CommitTo("young", 1, 2);
  clock_.AdvanceMs(299'999);
  manager_->Sweep();
  EXPECT_EQ(Place("old"), SessionPlace::kResident);
  clock_.AdvanceMs(1);
  manager_->Sweep();
  EXPECT_EQ(Place("old"), SessionPlace::kMemory);
  EXPECT_EQ(Place("young"), SessionPlace::kResident);
  ExpectResumes("old", 1, ResumeSource::kMemory,
                "idle for 600 s, its slot was given back", 1);
  EXPECT_EQ(Metric("reprise_sessions{model=\"test\",state=\"resident\"}"), 2);
}

TEST_F(SessionUpkeepTest, ASessionInATurnIsNotIdle) {
  CommitTo("s", 1);
  auto lease = Acquire("s");
  clock_.AdvanceMs(10'000'000);
  manager_->Sweep();
  EXPECT_EQ(Place("s"), SessionPlace::kActive);
  EXPECT_EQ(Metric("reprise_sessions{model=\"test\",state=\"active\"}"), 1);
}

TEST_F(SessionUpkeepTest, SuspendAllFreesEverySlotThatIsNotLeased) {
  CommitTo("a", 1);
  CommitTo("b", 1);
  auto lease = Acquire("b");
  manager_->SuspendAll();
  EXPECT_EQ(manager_->num_free_slots(), 1);
  EXPECT_EQ(Place("a"), SessionPlace::kSuspended);
  EXPECT_EQ(Place("b"), SessionPlace::kActive);
}

TEST_F(SessionUpkeepTest, AForkContinuesFromWhereTheFirstStands) {
  CommitTo("s", 2);
  ASSERT_TRUE(manager_->Touch(Key("s"), 9000).ok());
  const auto info = manager_->Fork(Key("s"), Key("t"), std::nullopt);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->stored.id, "t");
  EXPECT_EQ(info->stored.revision, 2u);
  EXPECT_EQ(info->stored.tokens, 2u);
  EXPECT_EQ(info->stored.forked_from, "s");
  EXPECT_EQ(info->stored.ttl_ms, 9000);
  EXPECT_EQ(info->place, SessionPlace::kSuspended);
  CommitTo("s", 3);  // does not change the fork
  ExpectResumes("t", 2, ResumeSource::kStore, "first turn since its fork");
  CommitTo("t", 4);
  EXPECT_EQ(manager_->Get(Key("s"))->stored.revision, 3u);

  EXPECT_EQ(manager_->Fork(Key("s"), Key("t"), {}).status().code(),
            kAlreadyExists);
  EXPECT_EQ(manager_->Fork(Key("s"), Key("s"), {}).status().code(),
            kAlreadyExists);
  EXPECT_EQ(manager_->Fork(Key("none"), Key("u"), {}).status().code(),
            kNotFound);
  EXPECT_EQ(manager_->Fork(Key("s"), Key("u"), 2).status().code(), kAborted);
  EXPECT_TRUE(manager_->Fork(Key("s"), Key("u"), 3).ok());
}

TEST_F(SessionUpkeepTest, AForkDuringATurnIsOfTheLastCommittedRevision) {
  CommitTo("s", 1);
  auto lease = Acquire("s");
  RunTurn(*lease, 99);
  ASSERT_TRUE(manager_->Fork(Key("s"), Key("t"), 1).ok());
  ExpectResumes("t", 1, ResumeSource::kStore, "first turn since its fork");
}

TEST_F(SessionUpkeepTest, ADeletedSessionIsGoneFromEverywhere) {
  CommitTo("resident", 1);
  CommitTo("cached", 1);
  ASSERT_TRUE(manager_->Suspend(Key("cached")).ok());
  for (const char* id : {"resident", "cached"}) {
    ASSERT_TRUE(manager_->Delete(Key(id)).ok());
    EXPECT_EQ(manager_->Get(Key(id)).status().code(), kNotFound);
    EXPECT_EQ(Acquire(id).status().code(), kNotFound);
    EXPECT_EQ(manager_->Delete(Key(id)).code(), kNotFound);
    EXPECT_EQ(memory_store_->GetEntry(Key(id)).status().code(), kNotFound);
  }
  EXPECT_EQ(manager_->num_free_slots(), 2);
  auto lease = Acquire("resident", /*create=*/true);
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(ReadState(*lease), StateOf(7, 0));
  EXPECT_EQ(lease->resume_reason(), "new session");
}

TEST_F(SessionUpkeepTest, ADeleteThatFailsLosesNothing) {
  CommitTo("s", 1);
  store_.FailCall(1, StoreFault::kUnavailable);
  EXPECT_EQ(manager_->Delete(Key("s")).code(), kUnavailable);
  ExpectResumes("s", 1, ResumeSource::kStore, "deleting it failed");
}

TEST_F(SessionUpkeepTest, ASessionExpiresWhenItsTtlHasPassed) {
  ASSERT_TRUE(manager_->CreateSession(Key("s"), /*ttl_ms=*/1000).ok());
  CommitTo("s", 1);
  clock_.AdvanceMs(900);
  CommitTo("s", 2);  // renews it
  clock_.AdvanceMs(900);
  manager_->Sweep();
  ASSERT_TRUE(manager_->Touch(Key("s"), std::nullopt).ok());  // again
  clock_.AdvanceMs(999);
  manager_->Sweep();
  EXPECT_EQ(manager_->Get(Key("s"))->stored.revision, 2u);
  clock_.AdvanceMs(1);
  // It does not exist any more, whether it was swept already or not.
  EXPECT_EQ(manager_->Get(Key("s")).status().code(), kNotFound);
  EXPECT_EQ(manager_->Touch(Key("s"), {}).status().code(), kNotFound);
  EXPECT_EQ(manager_->Fork(Key("s"), Key("t"), {}).status().code(), kNotFound);
  CommitTo("other", 1);
  manager_->Sweep();
  EXPECT_EQ(memory_store_->GetEntry(Key("s")).status().code(), kNotFound);
  EXPECT_EQ(manager_->num_free_slots(), 1);
  EXPECT_EQ(Metric("reprise_session_operations_total{op=\"expire\","
                   "result=\"ok\"}"),
            1);
}

TEST_F(SessionUpkeepTest, AnExpiredSessionIsNotResumed) {
  for (const bool resident : {true, false}) {
    CommitTo("s", 1);
    ASSERT_TRUE(manager_->Touch(Key("s"), 1000).ok());
    if (!resident) {
      ASSERT_TRUE(manager_->Suspend(Key("s")).ok());
    }
    clock_.AdvanceMs(1000);
    EXPECT_EQ(Acquire("s").status().code(), kNotFound);
    EXPECT_EQ(manager_->num_free_slots(), 2);
    auto lease = Acquire("s", /*create=*/true);
    ASSERT_TRUE(lease.ok()) << lease.status();
    EXPECT_EQ(lease->record().revision, 0u);
    EXPECT_EQ(ReadState(*lease), StateOf(7, 0));
    EXPECT_EQ(lease->resume_reason(), "new session");
  }
}

TEST_F(SessionUpkeepTest, AnExpiredSessionDoesNotExistForAnyCall) {
  for (const bool resident : {true, false}) {
    const auto expire = [&](const std::string& id) {
      CommitTo(id, 1);
      ASSERT_TRUE(manager_->Touch(Key(id), 1000).ok());
      if (!resident) {
        ASSERT_TRUE(manager_->Suspend(Key(id)).ok());
      }
      clock_.AdvanceMs(1000);
    };
    expire("s");
    EXPECT_EQ(manager_->Delete(Key("s")).code(), kNotFound);
    expire("s");
    const auto created = manager_->CreateSession(Key("s"), /*ttl_ms=*/0);
    ASSERT_TRUE(created.ok()) << created.status();
    EXPECT_EQ(created->stored.revision, 0u);
    ASSERT_TRUE(manager_->Delete(Key("s")).ok());
    CommitTo("from", 1);
    expire("s");
    const auto fork = manager_->Fork(Key("from"), Key("s"), std::nullopt);
    ASSERT_TRUE(fork.ok()) << fork.status();
    EXPECT_EQ(fork->stored.forked_from, "from");
    ASSERT_TRUE(manager_->Delete(Key("s")).ok());
    ASSERT_TRUE(manager_->Delete(Key("from")).ok());
    EXPECT_EQ(memory_store_->GetUsage()->sessions, 0u);
  }
}

TEST_F(SessionUpkeepTest, ListLeavesOutWhatHasExpiredAndStillFillsItsPages) {
  // a, d and e stay; a turn holds f.
  for (const char* id : {"a", "b", "c", "d", "e", "f"}) {
    const bool expires = std::string_view("bcf").find(id) != std::string::npos;
    ASSERT_TRUE(manager_->CreateSession(Key(id), expires ? 1000 : 0).ok());
  }
  const auto lease = Acquire("f");
  ASSERT_TRUE(lease.ok()) << lease.status();
  clock_.AdvanceMs(1000);
  const SessionKey any = Key("a");
  const auto list = [&](std::string_view after, int64_t limit) {
    std::string ids;
    const auto page = manager_->List(any.tenant, after, limit);
    for (const SessionInfo& info : *page) {
      ids += info.stored.id;
    }
    return ids;
  };
  EXPECT_EQ(list("", 2), "ad");
  EXPECT_EQ(list("d", 2), "ef");
  EXPECT_EQ(list("f", 2), "");
  EXPECT_EQ(list("", 100), "adef");
}

TEST_F(SessionUpkeepTest, ASessionDoesNotExpireDuringATurn) {
  ASSERT_TRUE(manager_->CreateSession(Key("s"), 1000).ok());
  auto lease = Acquire("s");
  RunTurn(*lease, 7);
  clock_.AdvanceMs(5000);
  manager_->Sweep();
  EXPECT_TRUE(manager_->Get(Key("s")).ok());
  ASSERT_TRUE(manager_->Commit(*std::move(lease)).ok());
  manager_->Sweep();
  EXPECT_EQ(manager_->Get(Key("s"))->stored.revision, 1u);
}

TEST_F(SessionUpkeepTest, ManySessionsExpireInOneSweep) {
  for (int i = 0; i < 700; ++i) {
    ASSERT_TRUE(
        manager_->CreateSession(Key("s" + std::to_string(i)), 1000).ok());
  }
  clock_.AdvanceMs(1000);
  manager_->Sweep();
  EXPECT_EQ(memory_store_->GetUsage()->sessions, 0u);
}

// Whoever stops the server waits for a sweep.
TEST_F(SessionUpkeepTest, ASweepEndsBeforeEverythingIsDeleted) {
  constexpr int kSessions = 5000;
  for (int i = 0; i < kSessions; ++i) {
    ASSERT_TRUE(
        manager_->CreateSession(Key("s" + std::to_string(i)), 1000).ok());
  }
  clock_.AdvanceMs(1000);
  manager_->Sweep();
  const uint64_t left = memory_store_->GetUsage()->sessions;
  EXPECT_GT(left, 0u);
  EXPECT_LE(left, kSessions - 1000u);
  for (int i = 0; i < 4; ++i) manager_->Sweep();
  EXPECT_EQ(memory_store_->GetUsage()->sessions, 0u);
}

TEST_F(SessionUpkeepTest, TouchSetsTheTtlWhereverTheSessionIs) {
  CommitTo("s", 1);
  auto info = manager_->Touch(Key("s"), 1000);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->place, SessionPlace::kResident);
  EXPECT_EQ(info->stored.expires_unix_ms, clock_.UnixMs() + 1000);
  ExpectResumes("s", 1, ResumeSource::kSlot, "");
  ASSERT_TRUE(manager_->Suspend(Key("s")).ok());
  info = manager_->Touch(Key("s"), 2000);
  EXPECT_EQ(info->place, SessionPlace::kMemory);
  CommitTo("s", 2);  // what it resumed from memory knew of the new one
  EXPECT_EQ(memory_store_->GetEntry(Key("s"))->ttl_ms, 2000);
  info = manager_->Touch(Key("s"), 0);
  EXPECT_EQ(info->stored.expires_unix_ms, 0);
  EXPECT_EQ(manager_->Touch(Key("none"), 1).status().code(), kNotFound);
  store_.FailCall(1, StoreFault::kUnavailable);
  EXPECT_EQ(manager_->Touch(Key("s"), 1).status().code(), kUnavailable);
  ExpectResumes("s", 2, ResumeSource::kStore, "its last touch failed");
}

TEST_F(SessionUpkeepTest, ListsTheTenantsSessionsWithTheirPlaces) {
  CommitTo("a", 1);
  ASSERT_TRUE(manager_->Suspend(Key("a")).ok());
  CommitTo("b", 1);
  ASSERT_TRUE(manager_->CreateSession(Key("c"), 0).ok());
  ASSERT_TRUE(manager_->CreateSession({"other", "d"}, 0).ok());
  auto lease = Acquire("c");
  const auto all = manager_->List("tenant", "", 10);
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all->size(), 3u);
  EXPECT_EQ((*all)[0].place, SessionPlace::kMemory);
  EXPECT_EQ((*all)[1].place, SessionPlace::kResident);
  EXPECT_EQ((*all)[2].place, SessionPlace::kActive);
  EXPECT_EQ((*all)[2].stored.id, "c");
  const auto page = manager_->List("tenant", "a", 1);
  ASSERT_EQ(page->size(), 1u);
  EXPECT_EQ((*page)[0].stored.id, "b");
  manager_->Sweep();
  EXPECT_EQ(Metric("reprise_sessions{model=\"test\",state=\"suspended\"}"), 2);
}

// Upkeep takes milliseconds: a turn that comes in the middle waits for it.
TEST_F(SessionUpkeepTest, ATurnWaitsForUpkeepInsteadOfBeingAborted) {
  CommitTo("s", 1);
  std::thread turn;
  store_.SetHook([&](StoreCall call) {
    if (call != StoreCall::kPutEntry) return;
    turn = std::thread([&] {
      const auto lease = Acquire("s");
      EXPECT_TRUE(lease.ok()) << lease.status();
    });
  });
  EXPECT_TRUE(manager_->Touch(Key("s"), 1000).ok());
  turn.join();
  store_.SetHook(nullptr);
}

TEST_F(SessionUpkeepTest, ASweepThatCannotReadTheStoreDoesNoHarm) {
  ASSERT_TRUE(manager_->CreateSession(Key("s"), 1000).ok());
  CommitTo("t", 1);
  clock_.AdvanceMs(600'000);
  for (int call = 1; call <= 4; ++call) {
    store_.FailCall(call, StoreFault::kUnavailable);
    manager_->Sweep();
  }
  store_.FailCall(0, StoreFault::kUnavailable);
  manager_->Sweep();
  EXPECT_EQ(manager_->Get(Key("s")).status().code(), kNotFound);
  EXPECT_EQ(Place("t"), SessionPlace::kMemory);
}

}  // namespace
}  // namespace reprise
