#include "server/session_cache.h"

#include <gtest/gtest.h>

namespace reprise {
namespace {

SessionKey Key(int i) { return {"t", std::to_string(i)}; }

StoredSession Revision(uint64_t revision) {
  StoredSession stored;
  stored.revision = revision;
  return stored;
}

TEST(SessionCacheTest, DropsTheSnapshotUsedLeastRecentlyAndKeepsItsNote) {
  SessionCache cache(/*capacity_bytes=*/100);
  cache.Put(Key(1), Revision(1), std::string(40, 'a'), "idle");
  cache.Put(Key(2), Revision(2), std::string(40, 'b'), "evicted");
  EXPECT_EQ(cache.bytes(), 80);
  EXPECT_EQ(*cache.Find(Key(1))->snapshot, std::string(40, 'a'));
  cache.Put(Key(3), Revision(3), std::string(40, 'c'), "idle");
  EXPECT_EQ(cache.bytes(), 80);
  EXPECT_TRUE(cache.HasSnapshot(Key(1)));
  EXPECT_FALSE(cache.HasSnapshot(Key(2)));
  EXPECT_TRUE(cache.HasSnapshot(Key(3)));
  EXPECT_EQ(cache.Find(Key(2))->snapshot, nullptr);
  EXPECT_EQ(cache.Find(Key(2))->note,
            "evicted; other snapshots took its place in memory");
  EXPECT_EQ(cache.Find(Key(3))->stored.revision, 3u);
}

TEST(SessionCacheTest, OneThatDoesNotFitIsOnlyNoted) {
  SessionCache cache(100);
  EXPECT_TRUE(cache.Fits(100));
  EXPECT_FALSE(cache.Fits(101));
  cache.Put(Key(1), Revision(1), std::string(60, 'a'), "first");
  cache.Put(Key(2), Revision(1), std::string(101, 'b'), "second");
  EXPECT_TRUE(cache.HasSnapshot(Key(1)));
  EXPECT_FALSE(cache.HasSnapshot(Key(2)));
  EXPECT_EQ(cache.Find(Key(2))->note, "second");
}

TEST(SessionCacheTest, ANewSnapshotReplacesTheOldOne) {
  SessionCache cache(100);
  cache.Put(Key(1), Revision(1), std::string(60, 'a'), "first");
  cache.Put(Key(1), Revision(2), std::string(70, 'b'), "second");
  EXPECT_EQ(cache.bytes(), 70);
  EXPECT_EQ(cache.Find(Key(1))->stored.revision, 2u);
  cache.Note(Key(1), "third");
  EXPECT_EQ(cache.Find(Key(1))->note, "third");
  EXPECT_TRUE(cache.HasSnapshot(Key(1)));
  StoredSession touched = Revision(2);
  touched.ttl_ms = 9;
  cache.UpdateStored(Key(1), touched);
  EXPECT_EQ(cache.Find(Key(1))->stored.ttl_ms, 9);
  cache.Erase(Key(1));
  EXPECT_EQ(cache.bytes(), 0);
  EXPECT_FALSE(cache.Find(Key(1)).has_value());
  cache.UpdateStored(Key(1), touched);
  EXPECT_FALSE(cache.Find(Key(1)).has_value());
}

TEST(SessionCacheTest, ASnapshotInUseOutlivesItsPlace) {
  SessionCache cache(100);
  cache.Put(Key(1), Revision(1), "abc", "note");
  const auto cached = cache.Find(Key(1));
  cache.Erase(Key(1));
  EXPECT_EQ(*cached->snapshot, "abc");
}

TEST(SessionCacheTest, NotesAreBoundedAndSaySo) {
  SessionCache cache(0);
  for (int i = 0; i < 4096; ++i) cache.Note(Key(i), "note");
  EXPECT_TRUE(cache.complete());
  EXPECT_TRUE(cache.Find(Key(0)).has_value());  // used again
  cache.Note(Key(5000), "note");
  EXPECT_FALSE(cache.complete());
  EXPECT_TRUE(cache.Find(Key(0)).has_value());
  EXPECT_FALSE(cache.Find(Key(1)).has_value());
}

}  // namespace
}  // namespace reprise
