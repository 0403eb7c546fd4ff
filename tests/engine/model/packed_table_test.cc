#include "engine/model/packed_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/base/bytes.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kTableOffset = 5 << 20;

PackedTable Example() {
  PackedTable table;
  table.identity = {{"cpu", "some"}, {"weights", "f32"}};
  Fingerprint::Digest digest;
  digest.fill(7);
  table.digests.emplace("a.weight", digest);
  PackedBlock block;
  block.layout = "blocks";
  block.offset = 128;
  block.weight_bytes = (1 << 20) + 10;  // two pieces
  block.other_bytes = 12;
  block.piece_checksums = {1, 2};
  block.other_checksum = 3;
  table.blocks.emplace("a", block);
  return table;
}

PackedHeader HeaderOf(const std::string& bytes) {
  return {.table_offset = kTableOffset,
          .table_bytes = bytes.size(),
          .table_checksum = Crc32c(bytes)};
}

absl::Status Decode(const std::string& bytes) {
  return DecodePackedTable(bytes, HeaderOf(bytes)).status();
}

TEST(PackedTableTest, IsReadAsItWasWritten) {
  const std::string bytes = EncodePackedTable(Example());
  const auto table = DecodePackedTable(bytes, HeaderOf(bytes));
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->identity, Example().identity);
  EXPECT_EQ(table->digests, Example().digests);
  const PackedBlock& block = table->blocks.at("a");
  EXPECT_EQ(block.layout, "blocks");
  EXPECT_EQ(block.offset, 128u);
  EXPECT_EQ(block.weight_bytes, (1u << 20) + 10);
  EXPECT_EQ(block.other_bytes, 12u);
  EXPECT_EQ(block.piece_checksums, (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(block.other_checksum, 3u);
}

TEST(PackedTableTest, NoticesAnyBitThatIsTurned) {
  const std::string bytes = EncodePackedTable(Example());
  const PackedHeader header = HeaderOf(bytes);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] ^= static_cast<char>(1 << bit % 8);
    EXPECT_EQ(DecodePackedTable(damaged, header).status().code(),
              absl::StatusCode::kDataLoss)
        << bit;
  }
}

// With a checksum that is right, as somebody would write it who wants harm.
TEST(PackedTableTest, SurvivesAnyByteAndAnyLengthUnderARightChecksum) {
  const std::string bytes = EncodePackedTable(Example());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(Decode(bytes.substr(0, size)).code(),
              absl::StatusCode::kDataLoss);
  }
  EXPECT_EQ(Decode(bytes + "x").code(), absl::StatusCode::kDataLoss);
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const char byte : {'\0', '\x01', '\x7f', '\xff'}) {
      std::string changed = bytes;
      changed[i] = byte;
      const absl::Status status = Decode(changed);  // anything but a crash
      EXPECT_TRUE(status.ok() || absl::IsDataLoss(status)) << status;
    }
  }
}

TEST(PackedTableTest, RefusesBlocksThatDoNotLieBeforeTheTable) {
  const auto with = [](auto change) {
    PackedTable table = Example();
    change(table.blocks.at("a"));
    return std::string(Decode(EncodePackedTable(table)).message());
  };
  EXPECT_EQ(with([](PackedBlock&) {}), "");
  const auto refusal = HasSubstr("does not fit before the table");
  EXPECT_THAT(with([](PackedBlock& b) { b.offset = 0; }), refusal);
  EXPECT_THAT(with([](PackedBlock& b) { b.offset = 130; }), refusal);
  EXPECT_THAT(with([](PackedBlock& b) { b.offset = kTableOffset; }), refusal);
  EXPECT_THAT(with([](PackedBlock& b) { b.offset = ~uint64_t{63}; }), refusal);
  EXPECT_THAT(with([](PackedBlock& b) { b.weight_bytes = ~uint64_t{0}; }),
              refusal);
  EXPECT_THAT(with([](PackedBlock& b) { b.other_bytes = ~uint64_t{0}; }),
              refusal);
  EXPECT_THAT(with([](PackedBlock& b) { b.other_bytes = kTableOffset; }),
              refusal);
}

TEST(PackedHeaderTest, IsReadAsItWasWritten) {
  const PackedHeader header{
      .table_offset = 640, .table_bytes = 60, .table_checksum = 5};
  const std::string bytes = EncodePackedHeader(header);
  EXPECT_EQ(bytes.size(), kPackedHeaderBytes);
  const auto read = DecodePackedHeader(bytes, 700);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->table_offset, 640u);
  EXPECT_EQ(read->table_bytes, 60u);
  EXPECT_EQ(read->table_checksum, 5u);
}

TEST(PackedHeaderTest, NoticesAnyBitThatIsTurnedAndAnyOtherLength) {
  const PackedHeader header{
      .table_offset = 640, .table_bytes = 60, .table_checksum = 5};
  const std::string bytes = EncodePackedHeader(header);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] ^= static_cast<char>(1 << bit % 8);
    EXPECT_FALSE(DecodePackedHeader(damaged, 700).ok()) << bit;
  }
  for (const uint64_t file_bytes : {0, 64, 639, 640, 699, 701}) {
    EXPECT_EQ(DecodePackedHeader(bytes, file_bytes).status().code(),
              absl::StatusCode::kDataLoss);
  }
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(DecodePackedHeader(bytes.substr(0, size), 700).status().code(),
              absl::StatusCode::kDataLoss);
  }
}

TEST(PackedHeaderTest, NamesAnotherVersion) {
  std::string bytes = EncodePackedHeader({.table_offset = 64});
  bytes[8] = 2;
  const absl::Status status = DecodePackedHeader(bytes, 64).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(status.message()),
            "it has version 2, this program reads 1");
}

}  // namespace
}  // namespace reprise
