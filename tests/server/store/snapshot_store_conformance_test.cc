// What every store promises of sessions and their snapshots. See also
// checkpoint_conformance_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <map>
#include <random>
#include <thread>

#include "tests/server/store/store_fixture.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using enum absl::StatusCode;

using SnapshotStoreTest = StoreConformance;

TEST_P(SnapshotStoreTest, GivesBackWhatWasPut) {
  const SessionKey key{"tenant", "id"};
  StoredSession session;
  session.id = "ignored";
  session.revision = 3;
  session.tokens = 77;
  session.snapshot_bytes = 1;  // ignored
  session.created_unix_ms = 1000;
  session.updated_unix_ms = 2000;
  session.expires_unix_ms = 5000;
  session.ttl_ms = 3000;
  session.forked_from = "other";
  std::string snapshot(100'000, 'x');
  snapshot[7] = '\0';
  ASSERT_TRUE(store_->Put(key, std::nullopt, session, snapshot, {}).ok());

  StoredSession got;
  std::string got_snapshot;
  ASSERT_TRUE(store_->Get(key, &got, &got_snapshot).ok());
  EXPECT_EQ(got_snapshot, snapshot);
  for (const StoredSession& entry : {got, *store_->GetEntry(key)}) {
    EXPECT_EQ(entry.id, "id");
    EXPECT_EQ(entry.revision, 3u);
    EXPECT_EQ(entry.tokens, 77u);
    EXPECT_EQ(entry.snapshot_bytes, 100'000u);
    EXPECT_EQ(entry.created_unix_ms, 1000);
    EXPECT_EQ(entry.updated_unix_ms, 2000);
    EXPECT_EQ(entry.expires_unix_ms, 5000);
    EXPECT_EQ(entry.ttl_ms, 3000);
    EXPECT_EQ(entry.forked_from, "other");
  }
}

TEST_P(SnapshotStoreTest, WhatIsNotThereIsNotFound) {
  const SessionKey key{"tenant", "id"};
  StoredSession session;
  std::string snapshot;
  EXPECT_EQ(store_->GetEntry(key).status().code(), kNotFound);
  EXPECT_EQ(store_->Get(key, &session, &snapshot).code(), kNotFound);
  EXPECT_EQ(store_->Delete(key).code(), kNotFound);
  EXPECT_EQ(store_->PutEntry(key, 0, session).code(), kAborted);
  EXPECT_THAT(ListIds("tenant"), IsEmpty());
  ASSERT_TRUE(Put(key, std::nullopt, 1).ok());
  EXPECT_EQ(store_->GetEntry({"Tenant", "id"}).status().code(), kNotFound);
}

TEST_P(SnapshotStoreTest, PutComparesTheRevisionAndChangesNothingIfItDiffers) {
  const SessionKey key{"t", "id"};
  const absl::Status none = Put(key, 4, 5, "first");
  EXPECT_EQ(none.code(), kAborted);
  EXPECT_THAT(std::string(none.message()),
              HasSubstr("stored is none, expected revision 4"));
  EXPECT_EQ(store_->GetEntry(key).status().code(), kNotFound);

  ASSERT_TRUE(Put(key, std::nullopt, 5, "first").ok());
  for (const std::optional<uint64_t> expected :
       {std::optional<uint64_t>(), std::optional<uint64_t>(4),
        std::optional<uint64_t>(6)}) {
    const absl::Status refused = Put(key, expected, 6, "second");
    EXPECT_EQ(refused.code(), kAborted);
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("stored is revision 5"));
  }
  StoredSession session;
  std::string snapshot;
  ASSERT_TRUE(store_->Get(key, &session, &snapshot).ok());
  EXPECT_EQ(session.revision, 5u);
  EXPECT_EQ(snapshot, "first");

  ASSERT_TRUE(Put(key, 5, 6, "second").ok());
  ASSERT_TRUE(store_->Get(key, &session, &snapshot).ok());
  EXPECT_EQ(session.revision, 6u);
  EXPECT_EQ(snapshot, "second");
}

TEST_P(SnapshotStoreTest, PutEntryLeavesTheSnapshotAlone) {
  const SessionKey key{"t", "id"};
  ASSERT_TRUE(Put(key, std::nullopt, 5, "the state").ok());
  StoredSession session;
  session.revision = 5;
  session.ttl_ms = 99;
  EXPECT_EQ(store_->PutEntry(key, 4, session).code(), kAborted);
  EXPECT_EQ(store_->GetEntry(key)->ttl_ms, 0);
  ASSERT_TRUE(store_->PutEntry(key, 5, session).ok());
  std::string snapshot;
  ASSERT_TRUE(store_->Get(key, &session, &snapshot).ok());
  EXPECT_EQ(session.ttl_ms, 99);
  EXPECT_EQ(session.snapshot_bytes, 9u);
  EXPECT_EQ(snapshot, "the state");
}

TEST_P(SnapshotStoreTest, DeletedSessionsAreGoneAndMayComeAgain) {
  const SessionKey key{"t", "id"};
  ASSERT_TRUE(Put(key, std::nullopt, 5, "old", /*expires_unix_ms=*/10).ok());
  ASSERT_TRUE(store_->Delete(key).ok());
  EXPECT_EQ(store_->GetEntry(key).status().code(), kNotFound);
  EXPECT_THAT(ListIds("t"), IsEmpty());
  EXPECT_THAT(Expired(100), IsEmpty());
  EXPECT_EQ(store_->GetUsage()->sessions, 0u);
  EXPECT_EQ(store_->GetUsage()->bytes, 0u);
  ASSERT_TRUE(Put(key, std::nullopt, 0, "new").ok());
  EXPECT_EQ(store_->GetEntry(key)->revision, 0u);
}

TEST_P(SnapshotStoreTest, ListsInTheOrderOfBytesAPageAtATime) {
  const std::vector<std::string> ids = {std::string("\0", 1),
                                        "0",
                                        "A",
                                        "a",
                                        std::string("a\0b", 3),
                                        "aa",
                                        "b",
                                        "\xc3\xa4",
                                        "\xff",
                                        "\xff\xff"};
  for (auto it = ids.rbegin(); it != ids.rend(); ++it) {
    ASSERT_TRUE(Put({"t", *it}, std::nullopt, 1).ok());
  }
  EXPECT_EQ(ListIds("t"), ids);
  std::vector<std::string> paged;
  for (std::string after;;) {
    const std::vector<std::string> page = ListIds("t", after, /*limit=*/3);
    EXPECT_LE(page.size(), 3u);
    if (page.empty()) break;
    paged.insert(paged.end(), page.begin(), page.end());
    after = page.back();
  }
  EXPECT_EQ(paged, ids);
  EXPECT_THAT(ListIds("t", "aa", 1), ElementsAre("b"));
  EXPECT_THAT(ListIds("t", "ab", 1), ElementsAre("b"));  // need not exist
  EXPECT_THAT(ListIds("t", "", 0), IsEmpty());
}

TEST_P(SnapshotStoreTest, TenantsNeverSeeEachOther) {
  const std::vector<std::string> tenants = {
      "",  "a",    std::string("a\0b", 3),     "ab",
      "b", "\xff", std::string("\0\0\0\1a", 5)};
  for (const std::string& tenant : tenants) {
    for (const char* id : {"\1", "b", "x", "\xff"}) {
      ASSERT_TRUE(Put({tenant, id}, std::nullopt, 1, tenant + "/" + id).ok());
    }
  }
  // Would be the key "a" + "\0b" + "x" if tenant and id were only joined.
  ASSERT_TRUE(Put({"a", std::string("\0bx", 3)}, std::nullopt, 1).ok());
  for (const std::string& tenant : tenants) {
    const size_t extra = tenant == "a" ? 1 : 0;
    EXPECT_EQ(ListIds(tenant).size(), 4 + extra);
    StoredSession session;
    std::string snapshot;
    ASSERT_TRUE(store_->Get({tenant, "x"}, &session, &snapshot).ok());
    EXPECT_EQ(snapshot, tenant + "/x");
  }
  EXPECT_THAT(ListIds("a", "\xff"), IsEmpty());
  ASSERT_TRUE(store_->Delete({"ab", "x"}).ok());
  EXPECT_TRUE(store_->GetEntry({"a", "x"}).ok());
}

TEST_P(SnapshotStoreTest, ListsExpiredSessionsOfAllTenants) {
  ASSERT_TRUE(Put({"a", "never"}, std::nullopt, 1, "s", 0).ok());
  ASSERT_TRUE(Put({"a", "late"}, std::nullopt, 1, "s", 300).ok());
  ASSERT_TRUE(Put({"b", "early"}, std::nullopt, 1, "s", 100).ok());
  ASSERT_TRUE(Put({"a", "middle"}, std::nullopt, 1, "s", 200).ok());
  EXPECT_THAT(Expired(99), IsEmpty());
  EXPECT_THAT(Expired(100), ElementsAre(SessionKey{"b", "early"}));
  EXPECT_THAT(Expired(200),
              ElementsAre(SessionKey{"b", "early"}, SessionKey{"a", "middle"}));
  EXPECT_THAT(Expired(1000, /*limit=*/1),
              ElementsAre(SessionKey{"b", "early"}));
  EXPECT_EQ(Expired(std::numeric_limits<int64_t>::max()).size(), 3u);

  // A new expiry replaces the old one, through either kind of Put.
  ASSERT_TRUE(Put({"b", "early"}, 1, 2, "s", 500).ok());
  StoredSession session;
  session.revision = 1;
  session.expires_unix_ms = 0;
  ASSERT_TRUE(store_->PutEntry({"a", "middle"}, 1, session).ok());
  EXPECT_THAT(Expired(499), ElementsAre(SessionKey{"a", "late"}));
  EXPECT_THAT(Expired(500),
              ElementsAre(SessionKey{"a", "late"}, SessionKey{"b", "early"}));
}

TEST_P(SnapshotStoreTest, DeletesWhatHasExpiredAndNothingElse) {
  const SessionKey key{"t", "id"};
  const std::vector<SessionKey> one = {key};
  EXPECT_EQ(*store_->DeleteExpired(one, 1000), 0);  // there is none
  ASSERT_TRUE(Put(key, std::nullopt, 1, "s", /*expires_unix_ms=*/300).ok());
  EXPECT_EQ(*store_->DeleteExpired(one, 299), 0);
  EXPECT_TRUE(store_->GetEntry(key).ok());
  EXPECT_EQ(*store_->DeleteExpired(one, 300), 1);
  EXPECT_EQ(store_->GetEntry(key).status().code(), kNotFound);
  EXPECT_EQ(store_->GetUsage()->sessions, 0u);
  EXPECT_THAT(Expired(1000), IsEmpty());
  ASSERT_TRUE(Put(key, std::nullopt, 1, "s", /*expires_unix_ms=*/0).ok());
  EXPECT_EQ(*store_->DeleteExpired(one, 1000), 0);  // never expires
}

TEST_P(SnapshotStoreTest, DeletesManyThatHaveExpiredAndLeavesTheOthers) {
  std::vector<SessionKey> keys;
  std::vector<std::string> left;
  for (int i = 0; i < 60; ++i) {
    keys.push_back({i % 2 == 0 ? "a" : "b", "s" + std::to_string(100 + i)});
    if (i == 0) continue;  // there is none
    const int64_t expires_unix_ms = i % 3 * 100;
    ASSERT_TRUE(Put(keys.back(), std::nullopt, 1, "s", expires_unix_ms).ok());
    if (i % 3 != 1 && i % 2 == 0) left.push_back(keys.back().id);
  }
  keys.push_back(keys.back());  // twice is once
  EXPECT_EQ(*store_->DeleteExpired(keys, 199), 20);
  EXPECT_EQ(ListIds("a"), left);
  EXPECT_EQ(store_->GetUsage()->sessions, 39u);
  EXPECT_EQ(store_->GetUsage()->bytes, 39u);
  EXPECT_EQ(Expired(199).size(), 0u);
  EXPECT_EQ(Expired(200).size(), 20u);
}

// Both come to the same revision, and what is meant for the one must not go
// over the other.
TEST_P(SnapshotStoreTest, ASessionThatWasMadeAgainIsAnother) {
  const SessionKey key{"t", "id"};
  StoredSession first;
  first.revision = 1;
  first.created_unix_ms = 100;
  ASSERT_TRUE(store_->Put(key, std::nullopt, first, "first", {}).ok());
  ASSERT_TRUE(store_->Delete(key).ok());
  StoredSession second = first;
  second.created_unix_ms = 200;
  ASSERT_TRUE(store_->Put(key, std::nullopt, second, "second", {}).ok());
  const absl::Status entry = store_->PutEntry(key, 1, first);
  EXPECT_EQ(entry.code(), kAborted);
  EXPECT_THAT(std::string(entry.message()),
              HasSubstr("session id: was deleted and made again at 200, this "
                        "is of the one made at 100"));
  first.revision = 2;
  EXPECT_EQ(store_->Put(key, 1, first, "late", {}).status().code(), kAborted);
  StoredSession session;
  std::string snapshot;
  ASSERT_TRUE(store_->Get(key, &session, &snapshot).ok());
  EXPECT_EQ(snapshot, "second");
  EXPECT_EQ(session.created_unix_ms, 200);
}

TEST_P(SnapshotStoreTest, UsageIsExact) {
  ASSERT_TRUE(Put({"a", "1"}, std::nullopt, 1, std::string(1000, 'x')).ok());
  ASSERT_TRUE(Put({"b", "2"}, std::nullopt, 1, std::string(500, 'x')).ok());
  ASSERT_TRUE(Put({"a", "1"}, 1, 2, std::string(10, 'x')).ok());
  EXPECT_EQ(store_->GetUsage()->sessions, 2u);
  EXPECT_EQ(store_->GetUsage()->bytes, 510u);
}

TEST_P(SnapshotStoreTest, OfManyWritersOfARevisionOneWins) {
  const SessionKey key{"t", "contended"};
  ASSERT_TRUE(Put(key, std::nullopt, 0).ok());
  constexpr int kThreads = 4;
  constexpr uint64_t kRounds = 25;
  std::atomic<uint64_t> wins{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      while (true) {
        const uint64_t revision = store_->GetEntry(key)->revision;
        if (revision == kRounds) return;
        const absl::Status status = Put(key, revision, revision + 1);
        if (status.ok()) ++wins;
        ASSERT_TRUE(status.ok() || absl::IsAborted(status)) << status;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wins, kRounds);
}

TEST_P(SnapshotStoreTest, AReaderNeverSeesAnEntryWithAnotherPutsSnapshot) {
  const SessionKey key{"t", "id"};
  ASSERT_TRUE(Put(key, std::nullopt, 0, "0").ok());
  std::atomic<bool> done{false};
  std::thread reader([&] {
    while (!done) {
      StoredSession session;
      std::string snapshot;
      ASSERT_TRUE(store_->Get(key, &session, &snapshot).ok());
      ASSERT_EQ(snapshot, std::to_string(session.revision));
      ASSERT_EQ(session.snapshot_bytes, snapshot.size());
    }
  });
  for (uint64_t revision = 1; revision <= 150; ++revision) {
    EXPECT_TRUE(
        Put(key, revision - 1, revision, std::to_string(revision)).ok());
  }
  done = true;
  reader.join();
}

// Every thread works on sessions of its own and knows what must be there.
void RunRandomOperations(SnapshotStore& store, int thread, int operations) {
  std::mt19937 random(thread);
  struct Expected {
    uint64_t revision;
    int64_t expires;
    std::string snapshot;
  };
  std::map<std::string, Expected> model;
  const std::string tenant = "tenant" + std::to_string(thread);
  for (int i = 0; i < operations; ++i) {
    const std::string id = std::string(1, static_cast<char>(random() % 8));
    const SessionKey key{tenant, id};
    const auto it = model.find(id);
    const bool exists = it != model.end();
    StoredSession session;
    std::string snapshot;
    switch (random() % 5) {
      case 0: {
        const absl::Status status = store.Get(key, &session, &snapshot);
        ASSERT_EQ(status.code(), exists ? kOk : kNotFound);
        if (!exists) break;
        ASSERT_EQ(session.revision, it->second.revision);
        ASSERT_EQ(session.expires_unix_ms, it->second.expires);
        ASSERT_EQ(snapshot, it->second.snapshot);
        break;
      }
      case 1: {
        ASSERT_EQ(store.Delete(key).code(), exists ? kOk : kNotFound);
        if (exists) model.erase(it);
        break;
      }
      case 2: {
        const auto page = store.List(tenant, "", 100);
        ASSERT_TRUE(page.ok());
        ASSERT_EQ(page->size(), model.size());
        size_t index = 0;
        for (const auto& [model_id, expected] : model) {
          ASSERT_EQ((*page)[index].id, model_id);
          ASSERT_EQ((*page)[index++].revision, expected.revision);
        }
        break;
      }
      default: {
        session.revision = random() % 1000;
        session.expires_unix_ms = random() % 2 * (random() % 1000 + 1);
        snapshot.assign(random() % 5000, static_cast<char>(random()));
        const std::optional<uint64_t> expected =
            exists ? std::optional(it->second.revision) : std::nullopt;
        ASSERT_TRUE(store.Put(key, expected, session, snapshot, {}).ok());
        model[id] = {session.revision, session.expires_unix_ms, snapshot};
      }
    }
  }
  const auto expired = store.ListExpired(500, 1000);
  ASSERT_TRUE(expired.ok());
  size_t mine = 0;
  for (const SessionKey& key : *expired) {
    if (key.tenant != tenant) continue;
    ++mine;
    ASSERT_LE(model.at(key.id).expires, 500);
  }
  size_t must_be = 0;
  for (const auto& [id, expected] : model) {
    must_be += expected.expires > 0 && expected.expires <= 500;
  }
  ASSERT_EQ(mine, must_be);
}

TEST_P(SnapshotStoreTest, ConcurrentRandomOperationsMatchAModel) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back(
        [&, t] { RunRandomOperations(*store_, t, /*operations=*/250); });
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(Stores, SnapshotStoreTest, AllStores(), StoreKindName);

}  // namespace
}  // namespace reprise
