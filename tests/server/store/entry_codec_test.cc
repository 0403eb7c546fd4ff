#include "server/store/entry_codec.h"

#include <gtest/gtest.h>

#include <limits>

#include "engine/base/bytes.h"

namespace reprise {
namespace {

StoredSession MakeSession() {
  StoredSession session;
  session.id = "id";
  session.revision = std::numeric_limits<uint64_t>::max();
  session.tokens = 2;
  session.snapshot_bytes = 3;
  session.created_unix_ms = 4;
  session.updated_unix_ms = 5;
  session.expires_unix_ms = 6;
  session.ttl_ms = 7;
  session.forked_from = "other";
  session.request_id = "request";
  session.request_fingerprint = 8;
  session.outcome_bytes = 9;
  session.checkpoints = {{10, 11, 12, 13}, {14, 15, 16, 17}};
  return session;
}

TEST(EntryCodecTest, RoundTrip) {
  const std::string key = EntryKey({"tenant", "id"});
  const auto decoded = DecodeEntry(key, EncodeEntry(key, MakeSession()));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->id, "id");
  EXPECT_EQ(decoded->revision, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(decoded->tokens, 2u);
  EXPECT_EQ(decoded->snapshot_bytes, 3u);
  EXPECT_EQ(decoded->created_unix_ms, 4);
  EXPECT_EQ(decoded->updated_unix_ms, 5);
  EXPECT_EQ(decoded->expires_unix_ms, 6);
  EXPECT_EQ(decoded->ttl_ms, 7);
  EXPECT_EQ(decoded->forked_from, "other");
  EXPECT_EQ(decoded->request_id, "request");
  EXPECT_EQ(decoded->request_fingerprint, 8u);
  EXPECT_EQ(decoded->outcome_bytes, 9u);
  EXPECT_EQ(decoded->checkpoints, MakeSession().checkpoints);
  EXPECT_FALSE(IsVersion1(EncodeEntry(key, MakeSession())));
}

// Its fields one by one, as the program that wrote version 1 put them.
TEST(EntryCodecTest, Version1IsStillRead) {
  const std::string key = EntryKey({"tenant", "id"});
  ByteWriter old;
  old.Put(uint8_t{1});
  for (uint64_t field = 1; field <= 7; ++field) old.Put(field);
  old.PutSized("other");
  old.Put(Crc32c(old.data(), Crc32c(key)));
  EXPECT_TRUE(IsVersion1(old.data()));
  const auto decoded = DecodeEntry(key, old.data());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->id, "id");
  EXPECT_EQ(decoded->revision, 1u);
  EXPECT_EQ(decoded->tokens, 2u);
  EXPECT_EQ(decoded->snapshot_bytes, 3u);
  EXPECT_EQ(decoded->created_unix_ms, 4);
  EXPECT_EQ(decoded->updated_unix_ms, 5);
  EXPECT_EQ(decoded->expires_unix_ms, 6);
  EXPECT_EQ(decoded->ttl_ms, 7);
  EXPECT_EQ(decoded->forked_from, "other");
  EXPECT_EQ(decoded->request_id, "");
  EXPECT_EQ(decoded->outcome_bytes, 0u);
  EXPECT_TRUE(decoded->checkpoints.empty());
}

TEST(EntryCodecTest, KeysOfBlobsLieTogetherAndApartFromAllOthers) {
  const std::string key = EntryKey({"t", "id"});
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  EXPECT_LT(OutcomeKey(key), SnapshotKey(key, 0));
  EXPECT_LT(SnapshotKey(key, 255), SnapshotKey(key, 256));
  EXPECT_LT(SnapshotKey(key, most), AfterBlobKeys(key));
  for (const SessionKey& other :
       {SessionKey{"t", "id2"}, SessionKey{"t", "i"}, SessionKey{"", "tid"},
        SessionKey{"t", std::string("id\0\0\0\0\0\0\0\0", 10)}}) {
    for (const std::string& blob :
         {OutcomeKey(EntryKey(other)), SnapshotKey(EntryKey(other), 0),
          SnapshotKey(EntryKey(other), most), EntryKey(other)}) {
      EXPECT_TRUE(blob < OutcomeKey(key) || blob >= AfterBlobKeys(key));
    }
  }
}

TEST(EntryCodecTest, EveryFlippedByteAndEveryCutIsDataLoss) {
  const std::string key = EntryKey({"tenant", "id"});
  const std::string bytes = EncodeEntry(key, MakeSession());
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] ^= 0x10;
    EXPECT_EQ(DecodeEntry(key, damaged).status().code(),
              absl::StatusCode::kDataLoss);
    EXPECT_EQ(DecodeEntry(key, bytes.substr(0, i)).status().code(),
              absl::StatusCode::kDataLoss);
  }
  EXPECT_FALSE(DecodeEntry(key, bytes + "x").ok());
}

TEST(EntryCodecTest, AnEntryOfAnotherVersionIsNotTakenForADamagedOne) {
  const std::string key = EntryKey({"tenant", "id"});
  const std::string entry = EncodeEntry(key, MakeSession());
  ByteWriter newer;
  newer.Put(uint8_t{3});
  newer.PutBytes(std::string_view(entry).substr(1, entry.size() - 5));
  newer.Put(Crc32c(newer.data(), Crc32c(key)));
  const absl::Status status = DecodeEntry(key, newer.Take()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
}

TEST(EntryCodecTest, AnEntryUnderAnothersKeyIsDataLoss) {
  const std::string bytes =
      EncodeEntry(EntryKey({"tenant", "id"}), MakeSession());
  EXPECT_EQ(DecodeEntry(EntryKey({"tenant", "ie"}), bytes).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(EntryCodecTest, KeysKeepTheOrderOfIdsAndApartTenants) {
  EXPECT_LT(EntryKey({"t", "a"}), EntryKey({"t", "aa"}));
  EXPECT_LT(EntryKey({"t", "aa"}), EntryKey({"t", "b"}));
  EXPECT_NE(EntryKey({"ta", "b"}), EntryKey({"t", "ab"}));
  EXPECT_FALSE(EntryKey({"ab", "x"}).starts_with(TenantPrefix("a")));
  EXPECT_TRUE(EntryKey({"ab", "x"}).starts_with(TenantPrefix("ab")));
  const SessionKey odd{std::string("\0\xff", 2), std::string("\xff\0", 2)};
  EXPECT_EQ(*ParseEntryKey(EntryKey(odd)), odd);
  EXPECT_EQ(ParseEntryKey("ab").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ParseEntryKey(std::string("\0\0\0\5ab", 6)).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(EntryCodecTest, ExpiryKeysAscendWithTime) {
  const std::string key = EntryKey({"t", "a"});
  EXPECT_LT(ExpiryKey(255, key), ExpiryKey(256, key));
  EXPECT_LT(ExpiryKey(1, key),
            ExpiryKey(std::numeric_limits<int64_t>::max(), key));
  const std::string expiry_key = ExpiryKey(77, key);
  const auto parsed = ParseExpiryKey(expiry_key);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->expires_unix_ms, 77);
  EXPECT_EQ(parsed->entry_key, key);
  EXPECT_FALSE(ParseExpiryKey("short").ok());
}

}  // namespace
}  // namespace reprise
