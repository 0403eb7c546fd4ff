// What every store promises of what it keeps beside the current snapshot:
// checkpoints, and the outcome of the last turn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <map>
#include <random>
#include <thread>

#include "server/store/store_rules.h"
#include "tests/server/store/store_calls.h"
#include "tests/server/store/store_fixture.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using enum absl::StatusCode;

std::string SnapshotOf(uint64_t revision) {
  return std::string(100 + revision, static_cast<char>(revision));
}

class CheckpointConformance : public StoreConformance {
 protected:
  // Puts this revision in place of the one before; 1 makes the session.
  absl::StatusOr<StoredSession> PutRevision(const SessionKey& key,
                                            uint64_t revision,
                                            uint64_t checkpoint_bytes,
                                            std::string_view outcome = "") {
    StoredSession session;
    session.revision = revision;
    session.tokens = revision * 10;
    session.updated_unix_ms = static_cast<int64_t>(revision) * 1000;
    const auto expected =
        revision == 1 ? std::nullopt : std::optional(revision - 1);
    return store_->Put(
        key, expected, session, SnapshotOf(revision),
        {.checkpoint_bytes = checkpoint_bytes, .outcome = outcome});
  }

  void PutRevisions(const SessionKey& key, uint64_t last,
                    uint64_t checkpoint_bytes) {
    for (uint64_t revision = 1; revision <= last; ++revision) {
      ASSERT_TRUE(PutRevision(key, revision, checkpoint_bytes).ok());
    }
  }

  static std::vector<uint64_t> Revisions(const StoredSession& session) {
    std::vector<uint64_t> revisions;
    for (const StoredCheckpoint& checkpoint : session.checkpoints) {
      revisions.push_back(checkpoint.revision);
    }
    return revisions;
  }

  std::vector<uint64_t> Kept(const SessionKey& key) {
    const auto entry = store_->GetEntry(key);
    EXPECT_TRUE(entry.ok()) << entry.status();
    return entry.ok() ? Revisions(*entry) : std::vector<uint64_t>();
  }

  const SessionKey key_{"t", "id"};
};

TEST_P(CheckpointConformance, EarlierRevisionsAreKeptByteForByte) {
  PutRevisions(key_, 4, kNoLimit);
  const auto entry = store_->GetEntry(key_);
  ASSERT_TRUE(entry.ok());
  EXPECT_THAT(entry->checkpoints,
              ElementsAre(StoredCheckpoint{1, 10, 101, 1000},
                          StoredCheckpoint{2, 20, 102, 2000},
                          StoredCheckpoint{3, 30, 103, 3000}));
  for (uint64_t revision = 1; revision <= 4; ++revision) {
    const auto snapshot = store_->GetSnapshot(key_, revision);
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    EXPECT_EQ(*snapshot, SnapshotOf(revision));
  }
  StoredSession session;
  std::string snapshot;
  ASSERT_TRUE(store_->Get(key_, &session, &snapshot).ok());
  EXPECT_EQ(session.checkpoints, entry->checkpoints);
  EXPECT_EQ(snapshot, SnapshotOf(4));
  EXPECT_EQ(store_->List("t", "", 1)->front().checkpoints, entry->checkpoints);
}

TEST_P(CheckpointConformance, PutReturnsTheEntryThatIsKept) {
  for (uint64_t revision = 1; revision <= 3; ++revision) {
    const auto kept = PutRevision(key_, revision, 102, "outcome");
    ASSERT_TRUE(kept.ok()) << kept.status();
    const auto entry = store_->GetEntry(key_);
    EXPECT_EQ(kept->id, "id");
    EXPECT_EQ(kept->revision, revision);
    EXPECT_EQ(kept->snapshot_bytes, 100 + revision);
    EXPECT_EQ(kept->outcome_bytes, 7u);
    EXPECT_EQ(kept->checkpoints, entry->checkpoints);
  }
  EXPECT_THAT(Kept(key_), ElementsAre(2));
}

TEST_P(CheckpointConformance, TheOldestMakeRoomAndTheBudgetIsNeverPassed) {
  PutRevisions(key_, 5, 103 + 104);
  EXPECT_THAT(Kept(key_), ElementsAre(3, 4));
  for (const uint64_t gone : {0, 1, 2, 6}) {
    const absl::Status status = store_->GetSnapshot(key_, gone).status();
    EXPECT_EQ(status.code(), kOutOfRange) << gone;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("session id: revision " + std::to_string(gone) +
                          " is not kept; there is 0 and 3..5"));
  }
  EXPECT_EQ(store_->GetUsage()->bytes, 103u + 104 + 105);
  // A smaller budget takes effect with the next write.
  ASSERT_TRUE(PutRevision(key_, 6, 104).ok());
  EXPECT_THAT(Kept(key_), IsEmpty());  // the latest has 105
  EXPECT_EQ(store_->GetUsage()->bytes, 106u);
}

TEST_P(CheckpointConformance, WithoutABudgetNoneIsKept) {
  PutRevisions(key_, 3, 0);
  EXPECT_THAT(Kept(key_), IsEmpty());
  EXPECT_EQ(store_->GetUsage()->bytes, 103u);
  EXPECT_EQ(store_->GetSnapshot(key_, 2).status().code(), kOutOfRange);
  EXPECT_EQ(*store_->GetSnapshot(key_, 3), SnapshotOf(3));
}

TEST_P(CheckpointConformance, TheirNumberIsLimitedToo) {
  StoredSession session;
  for (uint64_t revision = 1; revision <= kMaxCheckpoints + 5; ++revision) {
    session.revision = revision;
    const auto expected =
        revision == 1 ? std::nullopt : std::optional(revision - 1);
    ASSERT_TRUE(store_
                    ->Put(key_, expected, session, "",
                          {.checkpoint_bytes = 1, .outcome = ""})
                    .ok());
  }
  const std::vector<uint64_t> kept = Kept(key_);
  EXPECT_EQ(kept.size(), kMaxCheckpoints);
  EXPECT_EQ(kept.front(), 5u);
  EXPECT_EQ(kept.back(), kMaxCheckpoints + 4);
}

TEST_P(CheckpointConformance, ARefusedPutDropsNothing) {
  PutRevisions(key_, 3, kNoLimit);
  StoredSession session;
  session.revision = 4;
  EXPECT_EQ(store_->Put(key_, 2, session, "other", {}).status().code(),
            kAborted);
  EXPECT_THAT(Kept(key_), ElementsAre(1, 2));
  EXPECT_EQ(*store_->GetSnapshot(key_, 1), SnapshotOf(1));
}

TEST_P(CheckpointConformance, ARevisionThatIsPutAgainReplacesWhatWasThere) {
  PutRevisions(key_, 4, kNoLimit);
  StoredSession session;
  session.revision = 2;  // lower than what is stored, as no server does
  ASSERT_TRUE(store_
                  ->Put(key_, 4, session, "other",
                        {.checkpoint_bytes = kNoLimit, .outcome = ""})
                  .ok());
  EXPECT_THAT(Kept(key_), ElementsAre(1));
  EXPECT_EQ(*store_->GetSnapshot(key_, 1), SnapshotOf(1));
  EXPECT_EQ(*store_->GetSnapshot(key_, 2), "other");
  EXPECT_EQ(store_->GetSnapshot(key_, 3).status().code(), kOutOfRange);
  EXPECT_EQ(store_->GetUsage()->bytes, 101u + 5);
}

TEST_P(CheckpointConformance, PutEntryLeavesCheckpointsAndOutcomeAlone) {
  ASSERT_TRUE(PutRevision(key_, 1, kNoLimit).ok());
  ASSERT_TRUE(PutRevision(key_, 2, kNoLimit, "said").ok());
  StoredSession session;
  session.revision = 9;  // not its business
  session.ttl_ms = 77;
  session.checkpoints.resize(5);
  ASSERT_TRUE(store_->PutEntry(key_, 2, session).ok());
  EXPECT_EQ(store_->GetEntry(key_)->ttl_ms, 77);
  EXPECT_EQ(store_->GetEntry(key_)->revision, 2u);
  EXPECT_THAT(Kept(key_), ElementsAre(1));
  EXPECT_EQ(*store_->GetSnapshot(key_, 1), SnapshotOf(1));
  EXPECT_EQ(*store_->GetOutcome(key_, 2), "said");
}

TEST_P(CheckpointConformance, TheOutcomeIsThatOfTheCurrentRevisionAlone) {
  EXPECT_EQ(store_->GetOutcome(key_, 1).status().code(), kNotFound);
  const std::string long_one(100'000, 'x');
  ASSERT_TRUE(PutRevision(key_, 1, kNoLimit).ok());
  EXPECT_EQ(*store_->GetOutcome(key_, 1), "");
  ASSERT_TRUE(PutRevision(key_, 2, 0, long_one).ok());
  EXPECT_EQ(*store_->GetOutcome(key_, 2), long_one);
  EXPECT_EQ(store_->GetEntry(key_)->outcome_bytes, 100'000u);
  EXPECT_EQ(store_->GetUsage()->bytes, 100'102u);
  const absl::Status moved = store_->GetOutcome(key_, 1).status();
  EXPECT_EQ(moved.code(), kAborted);
  EXPECT_THAT(std::string(moved.message()),
              HasSubstr("stored is revision 2, expected revision 1"));
  ASSERT_TRUE(PutRevision(key_, 3, 0, "short").ok());
  EXPECT_EQ(*store_->GetOutcome(key_, 3), "short");
  ASSERT_TRUE(PutRevision(key_, 4, 0).ok());
  EXPECT_EQ(*store_->GetOutcome(key_, 4), "");
  EXPECT_EQ(store_->GetUsage()->bytes, 104u);
}

TEST_P(CheckpointConformance, TheRequestIsKeptWithItsRevision) {
  StoredSession session;
  session.revision = 1;
  session.request_id = std::string("r\0\xff", 3);
  session.request_fingerprint = kNoLimit;
  ASSERT_TRUE(store_->Put(key_, std::nullopt, session, "s", {}).ok());
  EXPECT_EQ(store_->GetEntry(key_)->request_id, session.request_id);
  EXPECT_EQ(store_->GetEntry(key_)->request_fingerprint, kNoLimit);
}

TEST_P(CheckpointConformance, DeleteDropsAllOfASessionAndNothingOfOthers) {
  // Ids whose keys continue one another, or look like a revision's.
  const std::vector<SessionKey> keys = {
      {"t", "id"},
      {"t", "id2"},
      {"t", std::string("id\0\0\0\0\0\0\0\1", 10)},
      {"ti", "d"},
      {"t", "\xff\xff"}};
  for (const SessionKey& key : keys) PutRevisions(key, 3, kNoLimit);
  ASSERT_TRUE(PutRevision(keys[0], 4, kNoLimit, "outcome").ok());
  ASSERT_TRUE(store_->Delete(keys[0]).ok());
  EXPECT_EQ(store_->GetSnapshot(keys[0], 1).status().code(), kNotFound);
  EXPECT_EQ(store_->GetSnapshot(keys[0], 4).status().code(), kNotFound);
  EXPECT_EQ(store_->GetUsage()->bytes, 4 * (101u + 102 + 103));
  for (size_t i = 1; i < keys.size(); ++i) {
    for (uint64_t revision = 1; revision <= 3; ++revision) {
      EXPECT_EQ(*store_->GetSnapshot(keys[i], revision), SnapshotOf(revision));
    }
  }
  // What comes after it begins without a past.
  ASSERT_TRUE(PutRevision(keys[0], 1, kNoLimit).ok());
  EXPECT_THAT(Kept(keys[0]), IsEmpty());
  EXPECT_EQ(*store_->GetOutcome(keys[0], 1), "");
}

TEST_P(CheckpointConformance, UsageIsCountedForEachTenant) {
  PutRevisions({"a", "1"}, 2, kNoLimit);
  PutRevisions({"a", "2"}, 1, kNoLimit);
  PutRevisions({"b", "1"}, 3, 0);
  EXPECT_EQ(store_->GetTenantUsage("a")->sessions, 2u);
  EXPECT_EQ(store_->GetTenantUsage("a")->bytes, 101u + 102 + 101);
  EXPECT_EQ(store_->GetTenantUsage("b")->sessions, 1u);
  EXPECT_EQ(store_->GetTenantUsage("b")->bytes, 103u);
  EXPECT_EQ(store_->GetTenantUsage("c")->sessions, 0u);
  EXPECT_EQ(store_->GetTenantUsage("c")->bytes, 0u);
  EXPECT_EQ(store_->GetUsage()->sessions, 3u);
  EXPECT_EQ(store_->GetUsage()->bytes, 407u);
  ASSERT_TRUE(store_->Delete({"a", "1"}).ok());
  EXPECT_EQ(store_->GetTenantUsage("a")->sessions, 1u);
  EXPECT_EQ(store_->GetTenantUsage("a")->bytes, 101u);
}

TEST_P(CheckpointConformance, AReaderOfACheckpointSeesItWholeOrNotAtAll) {
  ASSERT_TRUE(PutRevision(key_, 1, 350).ok());
  std::atomic<uint64_t> latest{1};
  std::thread reader([&] {
    std::mt19937 random(1);
    while (latest < 150) {
      const uint64_t revision =
          latest - std::min<uint64_t>(random() % 5, latest - 1);
      const auto snapshot = store_->GetSnapshot(key_, revision);
      if (snapshot.ok()) {
        ASSERT_EQ(*snapshot, SnapshotOf(revision));
      } else {
        ASSERT_EQ(snapshot.status().code(), kOutOfRange) << snapshot.status();
      }
    }
  });
  for (uint64_t revision = 2; revision <= 150; ++revision) {
    EXPECT_TRUE(PutRevision(key_, revision, 350).ok());
    latest = revision;
  }
  reader.join();
}

TEST_P(CheckpointConformance, RandomPutsMatchAModel) {
  std::mt19937 random(7);
  struct Expected {
    std::map<uint64_t, std::string> snapshots;  // the last is the current one
  };
  std::map<std::string, Expected> model;
  for (int i = 0; i < 400; ++i) {
    const SessionKey key{"t", std::string(1, static_cast<char>(random() % 5))};
    Expected& expected = model[key.id];
    if (random() % 12 == 0) {
      ASSERT_EQ(store_->Delete(key).code(),
                expected.snapshots.empty() ? kNotFound : kOk);
      model.erase(key.id);
      continue;
    }
    const bool exists = !expected.snapshots.empty();
    const uint64_t old = exists ? expected.snapshots.rbegin()->first : 0;
    StoredSession session;
    session.revision = old + 1 + random() % 3;
    const std::string snapshot(random() % 3000, static_cast<char>(random()));
    const uint64_t budget = random() % 8000;
    ASSERT_TRUE(store_
                    ->Put(key, exists ? std::optional(old) : std::nullopt,
                          session, snapshot,
                          {.checkpoint_bytes = budget, .outcome = ""})
                    .ok());
    // The latest that fit together, found the slow way.
    std::map<uint64_t, std::string> kept;
    uint64_t taken = 0;
    for (auto it = expected.snapshots.rbegin();
         it != expected.snapshots.rend() && budget > 0; ++it) {
      taken += it->second.size();
      if (taken > budget) break;
      kept.insert(*it);
    }
    kept[session.revision] = snapshot;
    expected.snapshots = kept;
    const auto entry = store_->GetEntry(key);
    ASSERT_EQ(entry->checkpoints.size() + 1, kept.size());
    for (const auto& [revision, bytes] : kept) {
      ASSERT_EQ(*store_->GetSnapshot(key, revision), bytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stores, CheckpointConformance, AllStores(),
                         StoreKindName);

}  // namespace
}  // namespace reprise
