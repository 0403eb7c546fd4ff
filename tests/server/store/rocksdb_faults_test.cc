// The RocksDB store on a medium that fails, and then works again. A program of
// its own: it changes the limits and the mounts of its process.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "server/store/snapshot_store.h"
#include "tests/server/store/store_calls.h"
#include "tests/support/small_disk.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

std::atomic<bool> no_threads{false};
std::atomic<int> refused_threads{0};

}  // namespace
}  // namespace reprise

// What std::thread of this program and of its libraries comes to, in place of
// the system's.
extern "C" int pthread_create(pthread_t* thread,
                              const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) noexcept {
  static const auto create = reinterpret_cast<decltype(&pthread_create)>(
      dlsym(RTLD_NEXT, "pthread_create"));
  if (!reprise::no_threads) return create(thread, attributes, body, argument);
  ++reprise::refused_threads;
  return EAGAIN;
}

namespace reprise {
namespace {

using ::testing::HasSubstr;
using enum absl::StatusCode;

void ExpectStored(SnapshotStore& store, uint64_t revision,
                  const std::string& snapshot) {
  StoredSession session;
  std::string stored;
  const absl::Status status = store.Get(kKey, &session, &stored);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(session.revision, revision);
  EXPECT_TRUE(stored == snapshot);
}

// Makes writes beyond this file size fail, as a broken disk does.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &previous_), 0);
    const struct rlimit limit = {bytes, previous_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() { EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &previous_), 0); }

 private:
  struct rlimit previous_;
};

TEST(RocksDbFaultsTest, WritesAgainOnceTheMediumDoes) {
  TempDir dir;
  const std::string old_state(30'000, 'o');
  const std::string new_state(30'000, 'n');
  {
    auto store = OpenRocksDb(dir.Path("db"));
    ASSERT_TRUE(PutState(*store, kKey, std::nullopt, 1, old_state).ok());
    const SessionKey other{"t", "other"};
    ASSERT_TRUE(store->Put(other, std::nullopt, {}, old_state, {}).ok());
    {
      FileSizeLimit limit(20'000);
      const absl::Status status = PutState(*store, kKey, 1, 2, new_state);
      EXPECT_EQ(status.code(), kUnavailable) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("File too large"));
      EXPECT_FALSE(IsNoSpace(status));
      // What became of that one is found out when it can be; others are read.
      EXPECT_EQ(store->GetEntry(kKey).status().code(), kUnavailable);
      EXPECT_EQ(*store->GetSnapshot(other, 0), old_state);
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(PutState(*store, kKey, 1, 2, new_state).code(), kUnavailable);
      }
    }
    ExpectStored(*store, 1, old_state);
    const absl::Status status = PutState(*store, kKey, 1, 2, new_state);
    EXPECT_TRUE(status.ok()) << status;
    ExpectStored(*store, 2, new_state);
  }
  ExpectStored(*OpenRocksDb(dir.Path("db")), 2, new_state);
}

// The database that is opened anew needs threads, its own and RocksDB's.
TEST(RocksDbFaultsTest, WritesAgainOnceThereAreThreads) {
  for (const Durability durability : {Durability::kFsync, Durability::kAsync}) {
    TempDir dir;
    const std::string old_state(30'000, 'o');
    const std::string new_state(30'000, 'n');
    auto store = OpenRocksDb(dir.Path("db"), durability);
    ASSERT_TRUE(PutState(*store, kKey, std::nullopt, 1, old_state).ok());
    const SessionKey other{"t", "other"};
    ASSERT_TRUE(store->Put(other, std::nullopt, {}, old_state, {}).ok());
    {
      FileSizeLimit limit(20'000);
      EXPECT_EQ(PutState(*store, kKey, 1, 2, new_state).code(), kUnavailable);
    }
    no_threads = true;
    for (int i = 1; i <= 3; ++i) {
      const absl::Status status = PutState(*store, kKey, 1, 2, new_state);
      EXPECT_EQ(status.code(), kUnavailable) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("cannot start a thread"));
      EXPECT_GE(refused_threads.exchange(0), 1);
      EXPECT_EQ(*store->GetSnapshot(other, 0), old_state);
    }
    no_threads = false;
    ExpectStored(*store, 1, old_state);
    const absl::Status status = PutState(*store, kKey, 1, 2, new_state);
    EXPECT_TRUE(status.ok()) << status;
    store.reset();
    ExpectStored(*OpenRocksDb(dir.Path("db"), durability), 2, new_state);
  }
}

TEST(RocksDbFaultsTest, AFullDiskIsSaidAndEndsWhenThereIsSpaceAgain) {
  TempDir dir;
  if (!MountSmallDisk(dir.path(), "64m")) {
    GTEST_SKIP() << "needs the right to mount";
  }
  const std::string state(300'000, 's');
  int64_t kept = 0;  // sessions whose Put was acknowledged
  const auto put_next = [&](SnapshotStore& store) {
    const absl::Status status =
        store.Put({"t", std::to_string(kept)}, std::nullopt, {}, state, {})
            .status();
    if (status.ok()) ++kept;
    return status;
  };
  const auto expect_all_kept = [&](SnapshotStore& store) {
    for (int64_t i = 0; i < kept; ++i) {
      StoredSession session;
      std::string stored;
      const absl::Status status =
          store.Get({"t", std::to_string(i)}, &session, &stored);
      ASSERT_TRUE(status.ok()) << i << ": " << status;
      ASSERT_TRUE(stored == state);
    }
  };
  {
    auto store = OpenRocksDb(dir.Path("db"));
    // Something else takes the space, and later gives it back.
    std::ofstream(dir.Path("filler")) << std::string(40'000'000, 'x');
    absl::Status status;
    for (int i = 0; i < 200 && status.ok(); ++i) status = put_next(*store);
    EXPECT_TRUE(IsNoSpace(status)) << status;
    EXPECT_EQ(status.code(), kUnavailable);
    EXPECT_THAT(std::string(status.message()), HasSubstr("no space left"));
    expect_all_kept(*store);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(IsNoSpace(put_next(*store)));
    expect_all_kept(*store);  // what failed to be written did not close it
    EXPECT_EQ(store->List("t", "", 1000)->size(), static_cast<size_t>(kept));
    EXPECT_TRUE(IsNoSpace(store->Delete({"t", "0"})));
    std::filesystem::remove(dir.Path("filler"));
    status = put_next(*store);
    EXPECT_TRUE(status.ok()) << status;
    expect_all_kept(*store);
    EXPECT_EQ(store->GetUsage()->sessions, static_cast<uint64_t>(kept));
  }
  expect_all_kept(*OpenRocksDb(dir.Path("db")));
  umount(dir.path().c_str());
}

}  // namespace
}  // namespace reprise
