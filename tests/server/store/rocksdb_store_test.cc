// What the RocksDB store promises beyond snapshot_store_conformance_test.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "engine/base/bytes.h"
#include "server/store/entry_codec.h"
#include "server/store/snapshot_store.h"
#include "tests/server/store/raw_database.h"
#include "tests/server/store/store_calls.h"
#include "tests/server/store/writer_pattern.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using enum absl::StatusCode;

// Flips a byte in the middle of the largest file with this extension.
void DamageLargestFile(const std::string& dir, const std::string& extension) {
  std::filesystem::path largest;
  uintmax_t size = 0;
  for (const auto& file : std::filesystem::directory_iterator(dir)) {
    if (file.path().extension() == extension && file.file_size() > size) {
      largest = file.path();
      size = file.file_size();
    }
  }
  ASSERT_GT(size, 0u) << extension;
  std::fstream stream(largest, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekg(size / 2);
  const char byte = static_cast<char>(stream.get());
  stream.seekp(size / 2);
  stream.put(static_cast<char>(byte ^ 0x40));
  ASSERT_TRUE(stream.good());
}

uintmax_t DirectoryBytes(const std::string& dir) {
  uintmax_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(dir)) {
    std::error_code gone;  // by a compaction, meanwhile
    const uintmax_t size = file.file_size(gone);
    if (!gone) bytes += size;
  }
  return bytes;
}

// store_writer, running on a database. Killed when destroyed.
class Writer {
 public:
  explicit Writer(const std::string& db) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    std::string program = REPRISE_BINARY_DIR "/store_writer";
    std::string argument = db;
    char* argv[] = {program.data(), argument.data(), nullptr};
    EXPECT_EQ(
        posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv, environ),
        0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    out_ = fdopen(ends[0], "r");
  }
  ~Writer() {
    Kill();
    fclose(out_);
  }

  // The next Put that was acknowledged; false when there are no more.
  bool Next(uint64_t* session, uint64_t* revision) {
    char line[64];
    if (std::fgets(line, sizeof(line), out_) == nullptr) return false;
    const std::string text = line;
    if (text.back() != '\n') return false;  // killed while writing it
    *session = std::stoull(text);
    *revision = std::stoull(text.substr(text.find(' ')));
    return true;
  }

  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    int status = 0;
    waitpid(pid_, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  FILE* out_ = nullptr;
};

TEST(RocksDbStoreTest, ReopeningKeepsEverything) {
  TempDir dir;
  for (uint64_t round = 0; round < 3; ++round) {
    auto store = OpenRocksDb(dir.Path("db"));
    const std::optional<uint64_t> expected =
        round == 0 ? std::nullopt : std::optional(round - 1);
    for (const char* id : {"a", "b", "c"}) {
      StoredSession session;
      std::string snapshot;
      if (round > 0) {
        ASSERT_TRUE(store->Get({"t", id}, &session, &snapshot).ok());
        EXPECT_EQ(snapshot, id + std::string(5000, '0' + round - 1));
      }
      ASSERT_TRUE(PutState(*store, {"t", id}, expected, round,
                           id + std::string(5000, '0' + round), 100 + round)
                      .ok());
    }
    EXPECT_EQ(store->GetUsage()->sessions, 3u);
    EXPECT_EQ(store->GetUsage()->bytes, 3 * 5001u);
    EXPECT_EQ(store->ListExpired(100 + round, 10)->size(), 3u);
    EXPECT_EQ(store->ListExpired(99 + round, 10)->size(), 0u);
    EXPECT_EQ(store->List("t", "", 10)->size(), 3u);
  }
}

TEST(RocksDbStoreTest, MakesMissingFoldersForThisUserAlone) {
  TempDir dir;
  auto store = OpenRocksDb(dir.Path("x/y/db"));
  for (const char* made : {"x", "x/y", "x/y/db"}) {
    struct stat info;
    ASSERT_EQ(stat(dir.Path(made).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u) << made;
  }
}

TEST(RocksDbStoreTest, SaysWhyItCannotBeOpened) {
  TempDir dir;
  std::ofstream(dir.Path("file")) << "not a folder";
  const absl::Status file = OpenRocksDbStore(dir.Path("file/db")).status();
  EXPECT_EQ(file.code(), kUnavailable);
  EXPECT_THAT(std::string(file.message()),
              HasSubstr("cannot make the directory"));
  EXPECT_THAT(std::string(file.message()), HasSubstr("/file"));
  const absl::Status same = OpenRocksDbStore(dir.Path("file")).status();
  EXPECT_EQ(same.code(), kUnavailable);
  EXPECT_THAT(
      std::string(same.message()),
      AllOf(HasSubstr("File exists"), HasSubstr("name a folder, not a file"),
            Not(HasSubstr("another process"))));
}

TEST(RocksDbStoreTest, WithoutDescriptorsItSaysWhichLimitToRaise) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer opens a pipe to look at an object's type";
#endif
  TempDir dir;
  ASSERT_NE(OpenRocksDb(dir.Path("db")), nullptr);
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const struct rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status status = OpenRocksDbStore(dir.Path("db")).status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(status.code(), kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ulimit -n"));
}

TEST(RocksDbStoreTest, NeedsPermission) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  TempDir dir;
  ASSERT_EQ(chmod(dir.path().c_str(), 0500), 0);
  const absl::Status status = OpenRocksDbStore(dir.Path("db")).status();
  ASSERT_EQ(chmod(dir.path().c_str(), 0700), 0);
  EXPECT_EQ(status.code(), kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("Permission denied"),
                    HasSubstr("give this user the right")));
}

TEST(RocksDbStoreTest, IsOpenedOnceOnly) {
  TempDir dir;
  {
    auto store = OpenRocksDb(dir.Path("db"));
    const absl::Status second = OpenRocksDbStore(dir.Path("db")).status();
    EXPECT_EQ(second.code(), kUnavailable);
    EXPECT_THAT(std::string(second.message()),
                AllOf(HasSubstr("is in use by"), HasSubstr("end that one")));
  }
  Writer writer(dir.Path("db"));
  uint64_t session, revision;
  ASSERT_TRUE(writer.Next(&session, &revision));
  const absl::Status other = OpenRocksDbStore(dir.Path("db")).status();
  EXPECT_EQ(other.code(), kUnavailable);
  EXPECT_THAT(std::string(other.message()),
              HasSubstr("is in use by another process"));
  writer.Kill();
  EXPECT_NE(OpenRocksDb(dir.Path("db")), nullptr);
}

TEST(RocksDbStoreTest, AcknowledgesNothingInAFolderThatWasRemoved) {
  const TempDir dir;
  const std::string path = dir.Path("store");
  auto store = OpenRocksDb(path);
  const SessionKey key{"t", "s"};
  ASSERT_TRUE(PutState(*store, key, std::nullopt, 1, "one").ok());
  std::filesystem::remove_all(path);
  const absl::Status removed = PutState(*store, key, 1, 2, "two");
  EXPECT_EQ(removed.code(), kUnavailable);
  EXPECT_THAT(std::string(removed.message()), HasSubstr("was removed"));
  std::filesystem::create_directory(path);
  EXPECT_EQ(PutState(*store, key, 1, 2, "two").code(), kUnavailable);
}

TEST(RocksDbStoreTest, WhatWasAcknowledgedSurvivesAKill) {
  TempDir dir;
  for (const int puts : {1, 40, 333}) {
    const std::string db = dir.Path("db" + std::to_string(puts));
    std::map<uint64_t, uint64_t> acknowledged;  // session to revision
    {
      Writer writer(db);
      uint64_t session, revision;
      for (int i = 0; i < puts; ++i) {
        ASSERT_TRUE(writer.Next(&session, &revision));
        acknowledged[session] = revision;
      }
      writer.Kill();
      while (writer.Next(&session, &revision)) {
        acknowledged[session] = revision;
      }
    }
    auto store = OpenRocksDb(db);
    for (const auto& [session, revision] : acknowledged) {
      StoredSession entry;
      std::string snapshot;
      ASSERT_TRUE(
          store->Get({"tenant", std::to_string(session)}, &entry, &snapshot)
              .ok());
      // One more may have been written and not acknowledged yet.
      EXPECT_GE(entry.revision, revision);
      EXPECT_LE(entry.revision, revision + 1);
      EXPECT_EQ(snapshot, WriterSnapshot(session, entry.revision));
      EXPECT_EQ(entry.checkpoints.size(), std::min<size_t>(entry.revision, 3));
      for (const StoredCheckpoint& checkpoint : entry.checkpoints) {
        const auto earlier = store->GetSnapshot(
            {"tenant", std::to_string(session)}, checkpoint.revision);
        ASSERT_TRUE(earlier.ok()) << earlier.status();
        EXPECT_EQ(*earlier, WriterSnapshot(session, checkpoint.revision));
      }
    }
  }
}

TEST(RocksDbStoreTest, ADamagedSnapshotIsDataLossAndItsEntryStillThere) {
  TempDir dir;
  ASSERT_TRUE(PutState(*OpenRocksDb(dir.Path("db")), {"t", "id"}, std::nullopt,
                       1, std::string(100'000, 's'))
                  .ok());
  OpenRocksDb(dir.Path("db"));  // moves it from the log to a blob file
  DamageLargestFile(dir.Path("db"), ".blob");
  auto store = OpenRocksDb(dir.Path("db"));
  StoredSession session;
  std::string snapshot = "before";
  EXPECT_EQ(store->Get({"t", "id"}, &session, &snapshot).code(), kDataLoss);
  EXPECT_EQ(snapshot, "before");
  EXPECT_EQ(store->GetEntry({"t", "id"})->revision, 1u);
  EXPECT_TRUE(store->Delete({"t", "id"}).ok());
}

// Flips a bit of the entry of {"t", id}.
void DamageEntry(const std::string& path, const std::string& id) {
  ChangeDatabase(path, [&](rocksdb::DB& db, const auto& handles) {
    const std::string key = EntryKey({"t", id});
    std::string entry;
    EXPECT_TRUE(db.Get({}, handles[1], key, &entry).ok());
    entry[5] ^= 1;
    EXPECT_TRUE(db.Put({}, handles[1], key, entry).ok());
  });
}

TEST(RocksDbStoreTest, NeitherANewerEntryNorABadIndexLineKeepsOthersAlive) {
  TempDir dir;
  {
    auto store = OpenRocksDb(dir.Path("db"));
    for (const char* id : {"a", "b"}) {
      ASSERT_TRUE(PutState(*store, {"t", id}, std::nullopt, 1, "state",
                           /*expires_unix_ms=*/50)
                      .ok());
    }
  }
  ChangeDatabase(dir.Path("db"), [](rocksdb::DB& db, const auto& handles) {
    const std::string key = EntryKey({"t", "a"});
    std::string entry;
    EXPECT_TRUE(db.Get({}, handles[1], key, &entry).ok());
    entry.resize(entry.size() - 4);
    entry[0] = 77;  // the version
    ByteWriter newer;
    newer.PutBytes(entry);
    newer.Put(Crc32c(entry, Crc32c(key)));
    EXPECT_TRUE(db.Put({}, handles[1], key, newer.data()).ok());
    EXPECT_TRUE(db.Put({}, handles[3], std::string(3, '\0'), "").ok());
  });
  auto store = OpenRocksDb(dir.Path("db"));
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(store->ListExpired(50, 10).ok());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("damaged line in its index of expiry times"));
  const SessionKey newer{"t", "a"};
  EXPECT_EQ(store->GetEntry(newer).status().code(), kFailedPrecondition);
  EXPECT_EQ(PutState(*store, newer, 1, 2, "new").code(), kFailedPrecondition);
  EXPECT_EQ(store->Delete(newer).code(), kFailedPrecondition);
  const auto expired = store->ListExpired(50, 10);
  ASSERT_TRUE(expired.ok()) << expired.status();
  ASSERT_EQ(expired->size(), 1u);
  EXPECT_EQ(expired->front().id, "b");
  EXPECT_EQ(store->GetUsage()->sessions, 2u);
  // The bad line was logged, and is not by every sweep.
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(store->ListExpired(50, 10).ok());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(RocksDbStoreTest, ADamagedEntryIsDataLossAndCanBeDeleted) {
  TempDir dir;
  {
    auto store = OpenRocksDb(dir.Path("db"));
    for (const char* id : {"a", "b", "c"}) {
      ASSERT_TRUE(PutState(*store, {"t", id}, std::nullopt, 1, "state",
                           /*expires_unix_ms=*/50)
                      .ok());
    }
  }
  DamageEntry(dir.Path("db"), "b");
  auto store = OpenRocksDb(dir.Path("db"));
  const SessionKey damaged{"t", "b"};
  StoredSession session;
  std::string snapshot;
  EXPECT_EQ(store->GetEntry(damaged).status().code(), kDataLoss);
  EXPECT_EQ(store->Get(damaged, &session, &snapshot).code(), kDataLoss);
  EXPECT_EQ(PutState(*store, damaged, 1, 2, "new").code(), kDataLoss);
  const auto page = store->List("t", "", 10);
  ASSERT_EQ(page->size(), 2u);
  EXPECT_EQ((*page)[1].id, "c");
  EXPECT_EQ(store->ListExpired(50, 10)->size(), 3u);
  EXPECT_EQ(store->GetUsage()->sessions, 3u);
  ASSERT_TRUE(store->Delete(damaged).ok());
  EXPECT_EQ(store->GetEntry(damaged).status().code(), kNotFound);
  EXPECT_EQ(store->GetUsage()->sessions, 2u);
  // Its line of the expiry index could not be told, and goes now.
  EXPECT_EQ(store->ListExpired(50, 10)->size(), 2u);
  EXPECT_TRUE(PutState(*store, damaged, std::nullopt, 0, "again").ok());
}

// Its entry, which named them, cannot be read.
TEST(RocksDbStoreTest, WithADamagedEntryItsCheckpointsAreDeletedToo) {
  TempDir dir;
  const auto keys_left = [&] {
    int64_t keys = 0;
    ChangeDatabase(dir.Path("db"), [&](rocksdb::DB& db, const auto& families) {
      const std::unique_ptr<rocksdb::Iterator> it(
          db.NewIterator({}, families[2]));
      for (it->SeekToFirst(); it->Valid(); it->Next()) ++keys;
    });
    return keys;
  };
  {
    auto store = OpenRocksDb(dir.Path("db"));
    for (const char* id : {"a", "b", "c"}) {
      for (uint64_t revision = 0; revision < 3; ++revision) {
        StoredSession session;
        session.revision = revision;
        ASSERT_TRUE(store
                        ->Put({"t", id},
                              revision == 0 ? std::nullopt
                                            : std::optional(revision - 1),
                              session, "state",
                              {.checkpoint_bytes = 1000, .outcome = "said"})
                        .ok());
      }
    }
  }
  EXPECT_EQ(keys_left(), 12);
  DamageEntry(dir.Path("db"), "b");
  ASSERT_TRUE(OpenRocksDb(dir.Path("db"))->Delete({"t", "b"}).ok());
  EXPECT_EQ(keys_left(), 8);
  auto store = OpenRocksDb(dir.Path("db"));
  for (const char* id : {"a", "c"}) {
    EXPECT_EQ(*store->GetSnapshot({"t", id}, 0), "state");
    EXPECT_EQ(*store->GetOutcome({"t", id}, 2), "said");
  }
}

TEST(RocksDbStoreTest, ADamagedLogIsNotSkipped) {
  TempDir dir;
  {
    auto store = OpenRocksDb(dir.Path("db"));
    for (uint64_t i = 0; i < 20; ++i) {
      ASSERT_TRUE(PutState(*store, {"t", std::to_string(i)}, std::nullopt, 1,
                           std::string(10'000, 's'))
                      .ok());
    }
  }
  DamageLargestFile(dir.Path("db"), ".log");
  const absl::Status status = OpenRocksDbStore(dir.Path("db")).status();
  EXPECT_EQ(status.code(), kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("it is damaged"));
}

TEST(RocksDbStoreTest, OverwritingAndDeletingDoNotGrowTheDiskForEver) {
  TempDir dir;
  auto store = OpenRocksDb(dir.Path("db"));
  constexpr uint64_t kSessions = 16;
  const std::string state(250'000, 's');
  uintmax_t largest = 0;
  // 200 MB written, 4 MB alive. The bound is four write buffers of 16 MB and
  // their log, which is the most that waits for a compaction.
  for (uint64_t i = 0; i < 800; ++i) {
    const uint64_t revision = i / kSessions;
    ASSERT_TRUE(
        PutState(*store, {"t", std::to_string(i % kSessions)},
                 revision == 0 ? std::nullopt : std::optional(revision - 1),
                 revision, state)
            .ok());
    if (i % 10 != 0) continue;
    largest = std::max(largest, DirectoryBytes(dir.Path("db")));
  }
  EXPECT_LT(largest, 128'000'000u);
}

}  // namespace
}  // namespace reprise
