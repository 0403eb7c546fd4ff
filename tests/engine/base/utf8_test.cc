#include "engine/base/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <unordered_set>

namespace reprise {
namespace {

std::string Encode(uint32_t code) {
  const auto byte = [](uint32_t value) { return static_cast<char>(value); };
  if (code < 0x80) return {byte(code)};
  if (code < 0x800) return {byte(0xC0 | code >> 6), byte(0x80 | (code & 63))};
  if (code < 0x10000) {
    return {byte(0xE0 | code >> 12), byte(0x80 | (code >> 6 & 63)),
            byte(0x80 | (code & 63))};
  }
  return {byte(0xF0 | code >> 18), byte(0x80 | (code >> 12 & 63)),
          byte(0x80 | (code >> 6 & 63)), byte(0x80 | (code & 63))};
}

bool IsScalar(uint32_t code) {
  return code < 0xD800 || (code > 0xDFFF && code <= 0x10FFFF);
}

// The definition itself (D93b): every well-formed character, and every proper
// beginning of one.
struct Definition {
  std::unordered_set<std::string> characters;
  std::unordered_set<std::string> beginnings;

  Definition() {
    for (uint32_t code = 0; code <= 0x10FFFF; ++code) {
      if (!IsScalar(code)) continue;
      const std::string bytes = Encode(code);
      characters.insert(bytes);
      for (size_t size = 1; size < bytes.size(); ++size) {
        beginnings.insert(bytes.substr(0, size));
      }
    }
  }

  std::string Replace(std::string_view text) const {
    std::string result;
    while (!text.empty()) {
      size_t size = 0;
      while (size < text.size() &&
             beginnings.contains(std::string(text.substr(0, size + 1)))) {
        ++size;
      }
      if (characters.contains(std::string(text.substr(0, size + 1)))) {
        result += text.substr(0, ++size);
      } else {
        size = std::max<size_t>(size, 1);
        result += "\xEF\xBF\xBD";
      }
      text.remove_prefix(size);
    }
    return result;
  }
};

constexpr Utf8Replacement kMaximalPart = Utf8Replacement::kMaximalPart;

std::string Replace(std::string_view text) {
  std::string result;
  if (AppendValidUtf8(text, kMaximalPart, &result) > 0)
    result += kReplacementCharacter;
  return result;
}

TEST(Utf8Test, EveryScalarValueIsOneCharacter) {
  for (uint32_t code = 0; code <= 0x10FFFF; ++code) {
    if (!IsScalar(code)) continue;
    const std::string bytes = Encode(code);
    const Utf8Unit unit = NextUtf8(bytes);
    ASSERT_EQ(unit.kind, Utf8Unit::kCharacter) << code;
    ASSERT_EQ(unit.size, bytes.size()) << code;
    ASSERT_EQ(DecodeUtf8Character(bytes), code);
    std::string appended = "x";
    ASSERT_TRUE(AppendUtf8(code, &appended));
    ASSERT_EQ(appended, "x" + bytes) << code;
  }
}

// Unicode 15, tables 3-8 to 3-11.
TEST(Utf8Test, ReplacesTheExamplesOfTheStandardAsItDoes) {
  const std::string r(kReplacementCharacter);
  EXPECT_EQ(Replace("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(Replace("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(Replace("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(Replace("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"),
            r + r + r + r + "A");
}

TEST(Utf8Test, ReplacesRandomBytesAsTheDefinitionSays) {
  const Definition definition;
  std::mt19937 random(1);
  // Bytes at which the rules change, so that near misses are common.
  constexpr uint8_t kBytes[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0,
                                0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED,
                                0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
  for (int round = 0; round < 200000; ++round) {
    std::string text;
    const size_t size = random() % 9;
    while (text.size() < size) {
      text += static_cast<char>(round % 2 == 0
                                    ? kBytes[random() % std::size(kBytes)]
                                    : random() % 256);
    }
    ASSERT_EQ(Replace(text), definition.Replace(text)) << round;
  }
}

TEST(Utf8Test, FindsTheFirstInvalidByte) {
  EXPECT_EQ(FindInvalidUtf8(""), std::string_view::npos);
  EXPECT_EQ(FindInvalidUtf8("h\xC3\xA9\xF0\x9F\x98\x80"),
            std::string_view::npos);
  EXPECT_EQ(FindInvalidUtf8("h\xC3\xA9\xFFx"), 3u);
  EXPECT_EQ(FindInvalidUtf8("h\xE2\x82"), 1u);
}

TEST(Utf8Test, AppendsNothingThatIsNoCharacter) {
  std::string text;
  for (const char32_t code : {0xD800, 0xDBFF, 0xDFFF, 0x110000}) {
    EXPECT_FALSE(AppendUtf8(code, &text));
  }
  EXPECT_FALSE(AppendUtf8(0xFFFFFFFF, &text));
  EXPECT_EQ(text, "");
}

TEST(Utf8Test, ReplacesEachByteIfAsked) {
  std::string text;
  EXPECT_EQ(AppendValidUtf8("a\xF0\x9F\x98!\xC3\xA9\xFF\xE2\x82",
                            Utf8Replacement::kEachByte, &text),
            2u);
  const std::string r(kReplacementCharacter);
  EXPECT_EQ(text, "a" + r + r + r + "!\xC3\xA9" + r);
}

TEST(Utf8Test, LeavesOutAnUnfinishedCharacterAtTheEnd) {
  std::string text;
  EXPECT_EQ(AppendValidUtf8("ab\xF0\x9F\x98", kMaximalPart, &text), 3u);
  EXPECT_EQ(text, "ab");
  EXPECT_EQ(AppendValidUtf8("\xF0\x9F\x98\x80", kMaximalPart, &text), 0u);
  EXPECT_EQ(text, "ab\xF0\x9F\x98\x80");
}

}  // namespace
}  // namespace reprise
