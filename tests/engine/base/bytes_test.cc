#include "engine/base/bytes.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>

namespace reprise {
namespace {

// RFC 3720, appendix B.4.
TEST(Crc32cTest, MatchesTheVectorsOfRfc3720) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string ascending;
  for (int i = 0; i < 32; ++i) ascending.push_back(static_cast<char>(i));
  EXPECT_EQ(Crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
}

// The polynomial division of RFC 3720, bit by bit.
uint32_t PlainCrc32c(std::string_view data) {
  uint32_t crc = 0xffffffff;
  for (const char c : data) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) {
      crc = crc & 1 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
    }
  }
  return ~crc;
}

// Long data are taken in several lanes: lengths and places around them.
TEST(Crc32cTest, IsThatOfThePolynomialAtEveryLength) {
  std::mt19937 random(1);
  std::string data(50'000, '\0');
  for (char& c : data) c = static_cast<char>(random());
  for (const size_t around : {0, 2048, 4096, 6144, 8192, 12288, 49152}) {
    for (size_t size = around < 20 ? 0 : around - 20; size < around + 20;
         ++size) {
      const std::string_view part =
          std::string_view(data).substr(size % 13, size);
      ASSERT_EQ(Crc32c(part), PlainCrc32c(part)) << size;
    }
  }
}

TEST(Crc32cTest, ContinuesFromAPreviousResult) {
  const std::string text = "The whole memory of a conversation";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(Crc32c(text.substr(cut), Crc32c(text.substr(0, cut))),
              Crc32c(text));
  }
}

TEST(ByteReaderTest, ReadsWhatTheWriterWrote) {
  ByteWriter writer;
  writer.Put<uint32_t>(7);
  writer.Put<double>(0.5);
  writer.PutSized("abc");
  writer.PutBytes("xy");
  ByteReader reader(writer.data());
  EXPECT_EQ(*reader.Get<uint32_t>(), 7u);
  EXPECT_EQ(*reader.Get<double>(), 0.5);
  EXPECT_EQ(*reader.GetSized(), "abc");
  EXPECT_EQ(*reader.GetBytes(2), "xy");
  EXPECT_EQ(reader.remaining(), 0u);
}

TEST(ByteReaderTest, RefusesToReadPastTheEndAndReadsNothing) {
  ByteWriter writer;
  writer.PutSized("abcdef");
  for (size_t size = 0; size < writer.data().size(); ++size) {
    ByteReader reader(std::string_view(writer.data()).substr(0, size));
    EXPECT_EQ(reader.GetSized().status().code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(reader.remaining(), size);
  }
  ByteReader reader("abc");
  EXPECT_FALSE(reader.GetBytes(~uint64_t{0}).ok());
  EXPECT_EQ(reader.remaining(), 3u);
}

}  // namespace
}  // namespace reprise
