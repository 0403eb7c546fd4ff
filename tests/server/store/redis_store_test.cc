// What the Redis store promises beyond the conformance tests, with a server
// that works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine/base/bytes.h"
#include "server/store/entry_codec.h"
#include "server/store/redis_scripts.h"
#include "tests/server/store/redis_fixture.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using enum absl::StatusCode;

class RedisStoreTest : public ::testing::Test {
 protected:
  std::vector<std::string> ListIds(const std::string& tenant) {
    std::vector<std::string> ids;
    const auto page = store_->List(tenant, "", 1000);
    EXPECT_TRUE(page.ok()) << page.status();
    for (const StoredSession& session : *page) ids.push_back(session.id);
    return ids;
  }

  RedisServer server_;
  std::unique_ptr<SnapshotStore> store_ = OpenGood(server_.Uri());
  RedisTalk talk_{server_.Uri()};
  const RedisKeys keys_{"reprise"};
};

TEST_F(RedisStoreTest, IsSharedByServersOfWhichOneWins) {
  EXPECT_TRUE(store_->shared());
  const auto other = OpenGood(server_.Uri());
  const SessionKey key{"t", "id"};
  ASSERT_TRUE(PutState(*store_, key, std::nullopt, 0, "0").ok());
  constexpr uint64_t kRounds = 100;
  std::atomic<uint64_t> wins{0};
  const auto race = [&](SnapshotStore& store) {
    while (true) {
      const auto entry = store.GetEntry(key);
      ASSERT_TRUE(entry.ok());
      if (entry->revision == kRounds) return;
      const uint64_t next = entry->revision + 1;
      const absl::Status status =
          PutState(store, key, entry->revision, next, std::to_string(next));
      ASSERT_TRUE(status.ok() || absl::IsAborted(status)) << status;
      if (status.ok()) ++wins;
    }
  };
  std::thread first([&] { race(*store_); });
  std::thread second([&] { race(*other); });
  first.join();
  second.join();
  EXPECT_EQ(wins, kRounds);
  EXPECT_EQ(StateOf(*other, key), "100");
}

// Every write of each is refused, though the revision is the expected one,
// until it has seen what the other did to the entry.
TEST_F(RedisStoreTest, TouchesOfOneServerAndCommitsOfAnotherBothSucceed) {
  const auto other = OpenGood(server_.Uri());
  const SessionKey key{"t", "id"};
  ASSERT_TRUE(PutState(*store_, key, std::nullopt, 0, "state").ok());
  std::atomic<bool> done{false};
  std::thread toucher([&] {
    while (!done) {
      StoredSession session = *other->GetEntry(key);
      session.ttl_ms++;
      const absl::Status status =
          other->PutEntry(key, session.revision, session);
      ASSERT_TRUE(status.ok() || absl::IsAborted(status)) << status;
    }
  });
  for (uint64_t revision = 1; revision <= 100; ++revision) {
    const absl::Status status =
        PutState(*store_, key, revision - 1, revision, "state");
    EXPECT_TRUE(status.ok()) << status;
  }
  done = true;
  toucher.join();
}

TEST_F(RedisStoreTest, PrefixesAndDatabasesAreApart) {
  const SessionKey key{"t", "id"};
  const auto prefix = OpenGood(server_.Uri("prefix=other"));
  const auto database = OpenGood(server_.Uri("database=1"));
  const auto local = OpenGood("redis+unix:" + server_.socket_path());
  ASSERT_TRUE(PutState(*store_, key, std::nullopt, 1, "here").ok());
  ASSERT_TRUE(PutState(*prefix, key, std::nullopt, 1, "prefix").ok());
  ASSERT_TRUE(PutState(*database, key, std::nullopt, 1, "database").ok());
  EXPECT_EQ(StateOf(*store_, key), "here");
  EXPECT_EQ(StateOf(*prefix, key), "prefix");
  EXPECT_EQ(StateOf(*database, key), "database");
  EXPECT_EQ(StateOf(*local, key), "here");  // by another way
}

TEST_F(RedisStoreTest, ASessionLiesWhereTheDocumentsSay) {
  ASSERT_TRUE(PutState(*store_, {"te:nant", "i:d"}, std::nullopt, 7, "state",
                       /*expires_unix_ms=*/1234)
                  .ok());
  const std::string key = "{reprise}:s:7:te:nant:i:d";
  EXPECT_EQ(talk_.Say({"HGET", key, "r:7"}).bytes, "state");
  EXPECT_EQ(talk_.Say({"HGET", key, "current"}).bytes, "r:7");
  EXPECT_EQ(talk_.Say({"ZSCORE", "{reprise}:i:te:nant", "i:d"}).bytes, "0");
  EXPECT_EQ(
      talk_.Say({"ZSCORE", "{reprise}:expiry", EntryKey({"te:nant", "i:d"})})
          .bytes,
      "1234");
  EXPECT_EQ(talk_.Say({"HGET", "{reprise}:usage", "bytes"}).bytes, "5");
  EXPECT_EQ(talk_.Say({"HGET", "{reprise}:u:te:nant", "sessions"}).bytes, "1");
}

TEST_F(RedisStoreTest, NothingIsLeftWhenAllIsDeleted) {
  for (const char* id : {"a", "b"}) {
    for (uint64_t revision = 0; revision < 3; ++revision) {
      StoredSession session;
      session.revision = revision;
      session.expires_unix_ms = 99;
      const auto expected =
          revision == 0 ? std::nullopt : std::optional(revision - 1);
      ASSERT_TRUE(store_
                      ->Put({"t", id}, expected, session, "state",
                            {.checkpoint_bytes = 100, .outcome = "said"})
                      .ok());
    }
  }
  for (const char* id : {"a", "b"}) ASSERT_TRUE(store_->Delete({"t", id}).ok());
  // The sums of all, which are 0, and the format.
  EXPECT_EQ(talk_.Say({"DBSIZE"}).integer, 2);
}

TEST_F(RedisStoreTest, PagesAreFullThoughSessionsWereTakenAway) {
  for (int i = 0; i < 300; ++i) {
    const std::string id = absl::StrCat(1000 + i);
    ASSERT_TRUE(PutState(*store_, {"t", id}, std::nullopt, 1, "s", 50).ok());
  }
  // As an evicting Redis, or a person, does it.
  for (int i = 0; i < 290; ++i) {
    talk_.Say({"DEL", keys_.Session({"t", absl::StrCat(1000 + i)})});
  }
  EXPECT_EQ(store_->List("t", "", 10)->size(), 10u);
  EXPECT_EQ(ListIds("t").size(), 10u);
  EXPECT_EQ(store_->GetUsage()->sessions, 10u);
  EXPECT_EQ(store_->ListExpired(50, 1000)->size(), 10u);
  EXPECT_EQ(talk_.Say({"ZCARD", keys_.expiry()}).integer, 10);
  EXPECT_EQ(talk_.Say({"ZCARD", keys_.Index("t")}).integer, 10);
}

TEST_F(RedisStoreTest, ADamagedEntryIsDataLossAndCanBeDeleted) {
  for (const char* id : {"a", "b", "c"}) {
    ASSERT_TRUE(
        PutState(*store_, {"t", id}, std::nullopt, 1, "state", 50).ok());
  }
  const SessionKey damaged{"t", "b"};
  std::string entry =
      talk_.Say({"HGET", keys_.Session(damaged), "entry"}).bytes;
  entry[5] ^= 1;
  talk_.Say({"HSET", keys_.Session(damaged), "entry", entry});

  StoredSession session;
  std::string snapshot = "before";
  EXPECT_EQ(store_->GetEntry(damaged).status().code(), kDataLoss);
  EXPECT_EQ(store_->Get(damaged, &session, &snapshot).code(), kDataLoss);
  EXPECT_EQ(snapshot, "before");
  EXPECT_EQ(PutState(*store_, damaged, 1, 2, "new").code(), kDataLoss);
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(ListIds("t"), ElementsAre("a", "c"));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("damaged session left out of a list"));
  ::testing::internal::CaptureStderr();
  ListIds("t");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");  // said once
  EXPECT_EQ(store_->ListExpired(50, 10)->size(), 3u);
  ASSERT_TRUE(store_->Delete(damaged).ok());
  EXPECT_EQ(store_->GetEntry(damaged).status().code(), kNotFound);
  EXPECT_EQ(store_->GetUsage()->bytes, 10u);
  EXPECT_TRUE(PutState(*store_, damaged, std::nullopt, 0, "again").ok());
}

TEST_F(RedisStoreTest, ASnapshotOfAnotherSizeIsDataLoss) {
  const SessionKey key{"t", "id"};
  ASSERT_TRUE(PutState(*store_, key, std::nullopt, 1, "state").ok());
  talk_.Say({"HSET", keys_.Session(key), "r:1", "stat"});
  StoredSession session;
  std::string snapshot;
  EXPECT_EQ(store_->Get(key, &session, &snapshot).code(), kDataLoss);
  EXPECT_EQ(store_->GetSnapshot(key, 1).status().code(), kDataLoss);
  talk_.Say({"HDEL", keys_.Session(key), "r:1", "current"});
  EXPECT_EQ(store_->Get(key, &session, &snapshot).code(), kDataLoss);
}

// The entry with another version, whole but for that.
std::string Newer(const std::string& key, std::string entry) {
  entry.resize(entry.size() - sizeof(uint32_t));
  entry[0] = 99;
  ByteWriter newer;
  newer.PutBytes(entry);
  newer.Put(Crc32c(entry, Crc32c(key)));
  return newer.Take();
}

TEST_F(RedisStoreTest, ANewerProgramsSessionsAreLeftAlone) {
  for (const char* id : {"a", "b"}) {
    ASSERT_TRUE(
        PutState(*store_, {"t", id}, std::nullopt, 1, "state", 50).ok());
  }
  const SessionKey newer{"t", "a"};
  const std::string hash = keys_.Session(newer);
  talk_.Say({"HSET", hash, "entry",
             Newer(EntryKey(newer), talk_.Say({"HGET", hash, "entry"}).bytes)});
  EXPECT_EQ(store_->GetEntry(newer).status().code(), kFailedPrecondition);
  EXPECT_EQ(PutState(*store_, newer, 1, 2, "new").code(), kFailedPrecondition);
  EXPECT_EQ(store_->Delete(newer).code(), kFailedPrecondition);
  EXPECT_THAT(*store_->ListExpired(50, 1), ElementsAre(SessionKey{"t", "b"}));
}

TEST_F(RedisStoreTest, ABadLineOfTheExpiryIndexGoes) {
  ASSERT_TRUE(PutState(*store_, {"t", "a"}, std::nullopt, 1, "s", 50).ok());
  talk_.Say({"ZADD", keys_.expiry(), "10", "bad"});
  EXPECT_EQ(store_->ListExpired(50, 10)->size(), 1u);
  EXPECT_EQ(talk_.Say({"ZCARD", keys_.expiry()}).integer, 1);
}

TEST_F(RedisStoreTest, AnotherFormatIsRefused) {
  talk_.Say({"SET", "{reprise}:format", "2"});
  const absl::Status status = OpenStore(server_.Uri()).status();
  EXPECT_EQ(status.code(), kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("{reprise}:format is 2, this program reads 1"));
}

TEST_F(RedisStoreTest, ScriptsThatRedisForgotAreSentAgain) {
  const SessionKey key{"t", "id"};
  for (uint64_t revision = 0; revision < 3; ++revision) {
    talk_.Say({"SCRIPT", "FLUSH"});
    const auto expected =
        revision == 0 ? std::nullopt : std::optional(revision - 1);
    ASSERT_TRUE(PutState(*store_, key, expected, revision, "state").ok());
    talk_.Say({"SCRIPT", "FLUSH"});
    EXPECT_EQ(StateOf(*store_, key), "state");
  }
  talk_.Say({"SCRIPT", "FLUSH"});
  EXPECT_TRUE(store_->Delete(key).ok());
}

TEST_F(RedisStoreTest, AFullMemoryRefusesWritesAndNothingElse) {
  const SessionKey key{"t", "id"};
  ASSERT_TRUE(PutState(*store_, key, std::nullopt, 1, "state").ok());
  talk_.Say({"CONFIG", "SET", "maxmemory", "1"});
  const absl::Status full = PutState(*store_, key, 1, 2, "more");
  EXPECT_EQ(full.code(), kUnavailable);
  EXPECT_TRUE(IsNoSpace(full)) << full;
  EXPECT_THAT(std::string(full.message()), HasSubstr("maxmemory"));
  EXPECT_EQ(StateOf(*store_, key), "state");
  EXPECT_EQ(store_->GetUsage()->bytes, 5u);
  EXPECT_THAT(ListIds("t"), ElementsAre("id"));
  EXPECT_NE(OpenGood(server_.Uri("prefix=new")), nullptr);
  ASSERT_TRUE(store_->Delete(key).ok());
  EXPECT_EQ(store_->GetUsage()->sessions, 0u);
  talk_.Say({"CONFIG", "SET", "maxmemory", "0"});
  EXPECT_TRUE(PutState(*store_, key, std::nullopt, 1, "state").ok());
}

TEST_F(RedisStoreTest, SettingsThatLoseSessionsAreSaid) {
  talk_.Say({"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"});
  talk_.Say({"CONFIG", "SET", "appendonly", "no"});
  ::testing::internal::CaptureStderr();
  OpenGood(server_.Uri());
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("may drop sessions when its memory is full"));
  EXPECT_THAT(log, HasSubstr("set appendonly to yes"));
  talk_.Say({"CONFIG", "SET", "maxmemory-policy", "noeviction"});
  talk_.Say({"CONFIG", "SET", "appendonly", "yes"});
  ::testing::internal::CaptureStderr();
  OpenGood(server_.Uri());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              Not(HasSubstr("advice")));
}

TEST_F(RedisStoreTest, LargeSnapshotsComeBackWhole) {
  std::string large(40 << 20, '\0');
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 7);
  const SessionKey key{"t", "id"};
  ASSERT_TRUE(PutState(*store_, key, std::nullopt, 1, large).ok());
  EXPECT_TRUE(StateOf(*store_, key) == large);
}

}  // namespace
}  // namespace reprise
