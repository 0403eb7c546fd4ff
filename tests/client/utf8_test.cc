#include "client/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace reprise {
namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";

// The limits of each row of table 3-7 in the Unicode Standard.
TEST(Utf8Test, KnowsWellFormedCharacters) {
  for (const std::string text :
       {"\x01", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xec\xbf\xbf",
        "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80",
        "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(Utf8CharacterLength(text), text.size())
        << testing::PrintToString(text);
    EXPECT_EQ(Utf8CharacterLength(text + "x"), text.size());
    EXPECT_EQ(ValidUtf8Prefix(text + text), 2 * text.size());
  }
}

TEST(Utf8Test, RefusesWhatIsNotWellFormed) {
  for (const std::string text :
       {"", "\x80", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2\x41", "\xe0\x9f\xbf",
        "\xed\xa0\x80", "\xe2\x82", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\xf0\x90\x80\x41", "\xff"}) {
    EXPECT_EQ(Utf8CharacterLength(text), 0u) << testing::PrintToString(text);
    EXPECT_EQ(ValidUtf8Prefix("ab" + text), 2u);
  }
}

TEST(SanitiseForTerminalTest, KeepsTextNewlinesAndTabs) {
  const std::string text =
      "In the\tbeginning\n\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80";
  EXPECT_EQ(SanitiseForTerminal(text), text);
}

TEST(SanitiseForTerminalTest, ReplacesEveryControlCharacter) {
  for (int byte = 0; byte < 0x20; ++byte) {
    if (byte == '\n' || byte == '\t') continue;
    EXPECT_EQ(SanitiseForTerminal(std::string(1, static_cast<char>(byte))),
              kReplacement)
        << byte;
  }
  EXPECT_EQ(SanitiseForTerminal("\x7f"), kReplacement);
  for (int byte = 0x80; byte < 0xa0; ++byte) {
    EXPECT_EQ(
        SanitiseForTerminal(std::string("\xc2") + static_cast<char>(byte)),
        kReplacement)
        << byte;
  }
  EXPECT_EQ(SanitiseForTerminal("\xc2\xa0"), "\xc2\xa0");
}

TEST(SanitiseForTerminalTest, DisarmsEscapeSequences) {
  EXPECT_EQ(SanitiseForTerminal("a\x1b]0;title\x07"
                                "b"),
            std::string("a") + kReplacement + "]0;title" + kReplacement + "b");
}

TEST(SanitiseForTerminalTest, ReplacesBrokenUtf8ByteByByte) {
  EXPECT_EQ(SanitiseForTerminal("\x9b"
                                "31m"),
            std::string(kReplacement) + "31m");
  EXPECT_EQ(SanitiseForTerminal("\xe2\x82"),
            std::string(kReplacement) + kReplacement);
}

}  // namespace
}  // namespace reprise
