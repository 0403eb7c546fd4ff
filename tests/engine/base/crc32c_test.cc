#include "engine/base/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>

#include "engine/base/bytes.h"

namespace reprise {
namespace {

// RFC 3720, appendix B.4.
TEST(Crc32cTest, MatchesTheVectorsOfRfc3720) {
  std::string ascending;
  for (int i = 0; i < 32; ++i) ascending.push_back(static_cast<char>(i));
  for (const Crc32cWay& way : Crc32cWays()) {
    EXPECT_EQ(way.crc32c(std::string(32, '\0'), 0), 0x8a9136aau) << way.name;
    EXPECT_EQ(way.crc32c(std::string(32, '\xff'), 0), 0x62a8ab43u) << way.name;
    EXPECT_EQ(way.crc32c(ascending, 0), 0x46dd794eu) << way.name;
    EXPECT_EQ(way.crc32c("123456789", 0), 0xe3069283u) << way.name;
  }
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

std::string RandomBytes(size_t size) {
  std::mt19937 random(1);
  std::string data(size, '\0');
  for (char& c : data) c = static_cast<char>(random());
  return data;
}

// Long data are taken in vectors and in lanes: lengths around theirs, at places
// of all kinds.
TEST(Crc32cTest, IsThatOfThePolynomialAtEveryLength) {
  const std::string data = RandomBytes(50'000);
  for (const size_t around :
       {0, 256, 512, 768, 1024, 2048, 2560, 4096, 5120, 6144, 7680, 8192, 12288,
        15360, 16000, 23680, 32000, 48000, 49152}) {
    for (size_t size = around < 20 ? 0 : around - 20; size < around + 20;
         ++size) {
      const std::string_view part =
          std::string_view(data).substr(size % 13, size);
      const uint32_t expected = PlainCrc32c(part);
      ASSERT_EQ(Crc32c(part), expected) << size;
      for (const Crc32cWay& way : Crc32cWays()) {
        ASSERT_EQ(way.crc32c(part, 0), expected) << way.name << " " << size;
      }
    }
  }
}

TEST(Crc32cTest, ContinuesFromAPreviousResult) {
  const std::string data = RandomBytes(17'000);
  const std::string_view all = data;
  const uint32_t expected = PlainCrc32c(all);
  for (size_t cut = 0; cut <= all.size(); cut += cut < 1500 ? 1 : 11) {
    const std::string_view rest = all.substr(cut);
    EXPECT_EQ(Crc32c(rest, Crc32c(all.substr(0, cut))), expected) << cut;
    for (const Crc32cWay& way : Crc32cWays()) {
      EXPECT_EQ(way.crc32c(rest, way.crc32c(all.substr(0, cut), 0)), expected)
          << way.name << " " << cut;
    }
  }
}

}  // namespace
}  // namespace reprise
