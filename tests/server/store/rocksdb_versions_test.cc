// Databases that earlier programs wrote. Entries of version 1 had neither
// checkpoints nor a request, and their snapshot lay under the entry key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/bytes.h"
#include "server/store/entry_codec.h"
#include "server/store/snapshot_store.h"
#include "tests/server/store/raw_database.h"
#include "tests/server/store/store_calls.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using enum absl::StatusCode;

const std::string kOldState(5000, 'o');

class RocksDbVersionsTest : public ::testing::Test {
 protected:
  // A session of version 1 at revision 6, expiring at 50.
  RocksDbVersionsTest() {
    ChangeDatabase(path_, [](rocksdb::DB& db, const ColumnFamilies& families) {
      const std::string key = EntryKey(kKey);
      ByteWriter entry;
      entry.Put(uint8_t{1});
      entry.Put(uint64_t{6});   // revision
      entry.Put(uint64_t{60});  // tokens
      entry.Put(uint64_t{kOldState.size()});
      entry.Put(int64_t{1000});  // created
      entry.Put(int64_t{2000});  // updated
      entry.Put(int64_t{50});    // expires
      entry.Put(int64_t{40});    // TTL
      entry.PutSized("other");   // forked from
      entry.Put(Crc32c(entry.data(), Crc32c(key)));
      EXPECT_TRUE(db.Put({}, families[1], key, entry.data()).ok());
      EXPECT_TRUE(db.Put({}, families[2], key, kOldState).ok());
      EXPECT_TRUE(db.Put({}, families[3], ExpiryKey(50, key), "").ok());
    });
    store_ = OpenRocksDb(path_);
  }

  // Whether a snapshot still lies where version 1 had it.
  bool HasOldSnapshot() {
    store_.reset();
    bool found = false;
    ChangeDatabase(path_, [&](rocksdb::DB& db, const ColumnFamilies& families) {
      std::string value;
      found = db.Get({}, families[2], EntryKey(kKey), &value).ok();
    });
    return found;
  }

  absl::StatusOr<StoredSession> PutNext(uint64_t checkpoint_bytes) {
    StoredSession session;
    session.revision = 7;
    session.created_unix_ms = 1000;
    return store_->Put(kKey, 6, session, "new",
                       {.checkpoint_bytes = checkpoint_bytes, .outcome = ""});
  }

  TempDir dir_;
  const std::string path_ = dir_.Path("db");
  std::unique_ptr<SnapshotStore> store_;
};

TEST_F(RocksDbVersionsTest, AnOldSessionIsReadAndCounted) {
  StoredSession session;
  std::string snapshot;
  ASSERT_TRUE(store_->Get(kKey, &session, &snapshot).ok());
  EXPECT_EQ(snapshot, kOldState);
  EXPECT_EQ(session.revision, 6u);
  EXPECT_EQ(session.tokens, 60u);
  EXPECT_EQ(session.forked_from, "other");
  EXPECT_THAT(session.checkpoints, IsEmpty());
  EXPECT_EQ(*store_->GetSnapshot(kKey, 6), kOldState);
  EXPECT_EQ(store_->GetSnapshot(kKey, 5).status().code(), kOutOfRange);
  EXPECT_EQ(*store_->GetOutcome(kKey, 6), "");
  EXPECT_EQ(store_->GetUsage()->bytes, kOldState.size());
  EXPECT_EQ(store_->ListExpired(50, 10)->size(), 1u);
  EXPECT_TRUE(HasOldSnapshot());  // reading moves nothing
}

TEST_F(RocksDbVersionsTest, ItsSnapshotBecomesACheckpointAsAnyOther) {
  const auto put = PutNext(kNoLimit);
  ASSERT_TRUE(put.ok()) << put.status();
  EXPECT_THAT(put->checkpoints,
              ElementsAre(StoredCheckpoint{6, 60, kOldState.size(), 2000}));
  EXPECT_EQ(*store_->GetSnapshot(kKey, 6), kOldState);
  EXPECT_EQ(*store_->GetSnapshot(kKey, 7), "new");
  EXPECT_THAT(*store_->ListExpired(50, 10), IsEmpty());
  EXPECT_FALSE(HasOldSnapshot());
}

TEST_F(RocksDbVersionsTest, ItsSnapshotGoesWhereNoneIsKept) {
  ASSERT_TRUE(PutNext(0).ok());
  EXPECT_EQ(*store_->GetSnapshot(kKey, 7), "new");
  EXPECT_EQ(store_->GetUsage()->bytes, 3u);
  EXPECT_FALSE(HasOldSnapshot());
}

TEST_F(RocksDbVersionsTest, ANewEntryAloneTakesTheSnapshotAlong) {
  StoredSession session = *store_->GetEntry(kKey);
  session.expires_unix_ms = 900;
  ASSERT_TRUE(store_->PutEntry(kKey, 6, session).ok());
  EXPECT_EQ(*store_->GetSnapshot(kKey, 6), kOldState);
  EXPECT_EQ(store_->ListExpired(900, 10)->size(), 1u);
  EXPECT_THAT(*store_->ListExpired(899, 10), IsEmpty());
  EXPECT_FALSE(HasOldSnapshot());
}

TEST_F(RocksDbVersionsTest, ADeletedOneLeavesNothing) {
  ASSERT_TRUE(store_->Delete(kKey).ok());
  EXPECT_EQ(store_->GetUsage()->bytes, 0u);
  EXPECT_EQ(store_->GetUsage()->sessions, 0u);
  EXPECT_FALSE(HasOldSnapshot());
}

}  // namespace
}  // namespace reprise
