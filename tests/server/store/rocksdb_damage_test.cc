// Snapshots whose file is damaged or gone: they are lost, others are not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "server/store/snapshot_store.h"
#include "tests/server/store/store_calls.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

namespace fs = std::filesystem;

absl::Status PutLarge(SnapshotStore& store, const std::string& id,
                      uint64_t revision) {
  StoredSession session;
  session.revision = revision;
  return store
      .Put({"t", id},
           revision == 1 ? std::nullopt : std::optional(revision - 1), session,
           std::string(100'000, id.front()), {})
      .status();
}

absl::StatusCode Read(SnapshotStore& store, const std::string& id) {
  StoredSession session;
  std::string snapshot;
  const absl::Status status = store.Get({"t", id}, &session, &snapshot);
  EXPECT_TRUE(!status.ok() || snapshot == std::string(100'000, id.front()));
  return status.code();
}

// The first block of every table that there is: of entries, of times to live
// and of where snapshots lie.
void ZeroTables(const fs::path& folder) {
  for (const auto& file : fs::directory_iterator(folder)) {
    if (file.path().extension() != ".sst") continue;
    std::fstream stream(file.path(),
                        std::ios::binary | std::ios::in | std::ios::out);
    stream << std::string(64, '\0');
  }
}

// A block holds the entries of many sessions: which ones, nobody can tell.
TEST(RocksDbDamageTest, ABlockOfEntriesEndsTheStartWithWhatToDo) {
  const TempDir dir;
  for (const char* id : {"a", "b", "c"}) {
    ASSERT_TRUE(PutLarge(*OpenRocksDb(dir.Path("db")), id, 1).ok());
  }
  OpenRocksDb(dir.Path("db"));  // moves all from the log to tables
  ZeroTables(dir.Path("db"));
  const absl::Status status = OpenRocksDbStore(dir.Path("db")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(StartsWith("store: cannot open " + dir.Path("db") +
                               ", it is damaged: Corruption: "),
                    HasSubstr("; put a copy back, or")));
}

struct DamageCase {
  const char* name;
  void (*damage)(const fs::path& blob_file);
};

class BlobDamageTest : public ::testing::TestWithParam<DamageCase> {};

TEST_P(BlobDamageTest, IsTheLossOfItsSessionAndOthersAreServed) {
  const TempDir dir;
  fs::path oldest;
  for (const char* id : {"a", "b", "c"}) {
    ASSERT_TRUE(PutLarge(*OpenRocksDb(dir.Path("db")), id, 1).ok());
    OpenRocksDb(dir.Path("db"));  // moves it from the log to a blob file
    for (const auto& file : fs::directory_iterator(dir.Path("db"))) {
      if (oldest.empty() && file.path().extension() == ".blob") {
        oldest = file.path();
      }
    }
  }
  ASSERT_FALSE(oldest.empty());
  GetParam().damage(oldest);

  ::testing::internal::CaptureStderr();
  auto store = OpenRocksDb(dir.Path("db"));
  EXPECT_EQ(Read(*store, "a"), absl::StatusCode::kDataLoss);
  EXPECT_EQ(store->GetEntry({"t", "a"})->revision, 1u);
  EXPECT_EQ(store->List("t", "", 10)->size(), 3u);
  // As many as make several tables and compactions, which rewrite blob files.
  for (uint64_t revision = 2; revision < 500; ++revision) {
    for (const char* id : {"b", "c"}) {
      const absl::Status status = PutLarge(*store, id, revision);
      ASSERT_TRUE(status.ok()) << revision << ": " << status;
    }
  }
  EXPECT_EQ(Read(*store, "a"), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Read(*store, "b"), absl::StatusCode::kOk);
  ASSERT_TRUE(store->Delete({"t", "a"}).ok());
  EXPECT_EQ(Read(*store, "a"), absl::StatusCode::kNotFound);
  EXPECT_TRUE(PutLarge(*store, "a", 1).ok());
  store = nullptr;
  store = OpenRocksDb(dir.Path("db"));
  for (const char* id : {"a", "b", "c"}) {
    EXPECT_EQ(Read(*store, id), absl::StatusCode::kOk);
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  if (::testing::Test::HasFailure()) printf("%s\n", log.c_str());
}

INSTANTIATE_TEST_SUITE_P(
    All, BlobDamageTest,
    ::testing::Values(
        DamageCase{"Gone", [](const fs::path& file) { fs::remove(file); }},
        DamageCase{"Empty",
                   [](const fs::path& file) { fs::resize_file(file, 0); }},
        DamageCase{"Cut",
                   [](const fs::path& file) { fs::resize_file(file, 5000); }},
        DamageCase{"ABitFlipped",
                   [](const fs::path& file) {
                     std::fstream stream(
                         file, std::ios::binary | std::ios::in | std::ios::out);
                     stream.seekp(50'000);
                     stream.put('?');
                   }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace reprise
