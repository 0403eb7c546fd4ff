// What each durability of the RocksDB store syncs, and what the end of the
// machine takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/store/disk_store.h"
#include "tests/server/store/store_ledger.h"
#include "tests/support/eventually.h"

namespace reprise {
namespace {

using std::chrono::steady_clock;
using ::testing::HasSubstr;

TEST(RocksDbDurabilityTest, FsyncSyncsTheLogBeforeEveryAcknowledgement) {
  StoreDisk disk;
  auto store = disk.Open();
  StoreLedger ledger(5000);
  for (int i = 0; i < 50; ++i) {
    const int64_t before = disk.files->log_syncs();
    ASSERT_TRUE(ledger.PutNext(*store, "s").ok());
    EXPECT_GT(disk.files->log_syncs(), before);
  }
  const int64_t before = disk.files->log_syncs();
  ASSERT_TRUE(store->Delete({"t", "s"}).ok());
  EXPECT_GT(disk.files->log_syncs(), before);
}

TEST(RocksDbDurabilityTest, FsyncSyncsWritesOfSeveralSessionsTogether) {
  StoreDisk disk;
  auto store = disk.Open();
  constexpr int kSessions = 16, kPuts = 20;
  const int64_t before = disk.files->log_syncs();
  disk.files->SlowDownSyncs(/*ms=*/5);
  std::vector<std::thread> threads;
  for (int s = 0; s < kSessions; ++s) {
    threads.emplace_back([&, s] {
      StoreLedger ledger(5000);
      for (int i = 0; i < kPuts; ++i) {
        EXPECT_TRUE(ledger.PutNext(*store, std::to_string(s)).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const int64_t syncs = disk.files->log_syncs() - before;
  EXPECT_GE(syncs, kPuts);
  // Sixteen at a time at best, one at a time if each waited for the others.
  EXPECT_LT(syncs, kSessions * kPuts / 4);
}

TEST(RocksDbDurabilityTest, AsyncSyncsInTheBackgroundWithinABound) {
  StoreDisk disk;
  auto store = disk.Open(Durability::kAsync);
  StoreLedger ledger(5000);
  const int64_t syncs_before = disk.files->log_syncs();
  const int64_t writes_before = disk.files->log_writes();
  const auto start = steady_clock::now();
  constexpr int kPuts = 500;
  for (int i = 0; i < kPuts; ++i) {
    ASSERT_TRUE(ledger.PutNext(*store, "s").ok());
  }
  // Each was given to the system before it was acknowledged.
  EXPECT_GE(disk.files->log_writes() - writes_before, kPuts);
  const auto periods =
      (steady_clock::now() - start) / std::chrono::milliseconds(kAsyncSyncMs);
  EXPECT_LE(disk.files->log_syncs() - syncs_before, periods + 2);
  // And without any other write, it comes to the disk.
  EXPECT_TRUE(
      Eventually([&] { return disk.files->unsynced_log_bytes() == 0; }));
  // Then there is nothing to be done.
  const int64_t syncs = disk.files->log_syncs();
  std::this_thread::sleep_for(std::chrono::milliseconds(3 * kAsyncSyncMs));
  EXPECT_LE(disk.files->log_syncs(), syncs + 1);
}

TEST(RocksDbDurabilityTest, NoneWritesNoLogAndIsWholeAfterAStopInOrder) {
  StoreDisk disk;
  StoreLedger ledger(5000);
  {
    auto store = disk.Open(Durability::kNone);
    const int64_t writes = disk.files->log_writes();
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(ledger.PutNext(*store, std::to_string(i % 5)).ok());
    }
    ASSERT_TRUE(store->Delete({"t", "4"}).ok());
    ledger.Forget("4");
    EXPECT_EQ(disk.files->log_writes(), writes);
    EXPECT_EQ(disk.files->log_syncs(), 0);
  }
  ledger.Check(*disk.Open());
}

struct PowerCase {
  Durability durability;
  bool may_lose;
};

class PowerTest : public ::testing::TestWithParam<PowerCase> {};

// The power goes at a random moment; of what was not synced, any part is left.
TEST_P(PowerTest, WhatIsLeftIsAStateThatThereWas) {
  StoreDisk disk;
  StoreLedger ledger(40'000);  // so that memtables fill up too
  uint64_t lost = 0;
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    {
      auto store = disk.Open(GetParam().durability);
      ASSERT_NE(store, nullptr);
      const int puts = static_cast<int>(random() % 150);
      for (int i = 0; i < puts; ++i) {
        ASSERT_TRUE(ledger.PutNext(*store, std::to_string(random() % 9)).ok());
      }
      disk.files->CutPower();
    }
    disk.files->LoseUnsynced(seed);
    auto store = disk.Open(GetParam().durability);
    ASSERT_NE(store, nullptr);
    lost += ledger.CountLost(*store);
  }
  EXPECT_GT(ledger.acknowledged(), 300u);
  // That async and none lose something shows that the test can see a loss.
  EXPECT_EQ(lost > 0, GetParam().may_lose) << lost;
}

INSTANTIATE_TEST_SUITE_P(All, PowerTest,
                         ::testing::Values(PowerCase{Durability::kFsync, false},
                                           PowerCase{Durability::kAsync, true},
                                           PowerCase{Durability::kNone, true}),
                         [](const auto& info) {
                           return DurabilityName(info.param.durability);
                         });

TEST(RocksDbDurabilityTest, OtherStoresRefuseTheChoice) {
  for (const std::string uri : {"memory:", "redis://127.0.0.1:1"}) {
    for (const Durability durability : kDurabilities) {
      const absl::Status status = OpenStore(uri, durability).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(
          std::string(status.message()),
          HasSubstr(std::string("durability: ") + DurabilityName(durability) +
                    " cannot be chosen with a store of "));
    }
  }
  TempDir dir;
  for (const Durability durability : kDurabilities) {
    EXPECT_TRUE(OpenStore("rocksdb:" + dir.Path("db"), durability).ok());
  }
}

TEST(RocksDbDurabilityTest, EachSaysWhatATurnSurvives) {
  const auto survives = [](const std::string& uri, Durability durability) {
    return WhatSurvives(uri, durability);
  };
  EXPECT_EQ(WhatSurvives("rocksdb:x", std::nullopt),
            survives("rocksdb:x", Durability::kFsync));
  EXPECT_THAT(survives("rocksdb:x", Durability::kFsync),
              HasSubstr("the end of the process and of the machine"));
  EXPECT_THAT(survives("rocksdb:x", Durability::kAsync),
              HasSubstr("takes the last 100 ms"));
  EXPECT_THAT(survives("rocksdb:x", Durability::kNone),
              HasSubstr("takes the last 10 s"));
  EXPECT_THAT(WhatSurvives("memory:", std::nullopt), HasSubstr("nothing"));
  EXPECT_THAT(WhatSurvives("rediss://h", std::nullopt),
              HasSubstr("what Redis is set to survive"));
}

}  // namespace
}  // namespace reprise
