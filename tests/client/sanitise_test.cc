#include "client/sanitise.h"

#include <gtest/gtest.h>

#include <string>

namespace reprise {
namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";

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

TEST(SanitiseForTerminalTest, ReplacesBrokenUtf8) {
  EXPECT_EQ(SanitiseForTerminal("\x9b"
                                "31m"),
            std::string(kReplacement) + "31m");
  EXPECT_EQ(SanitiseForTerminal("\xe2\x82"), kReplacement);
  EXPECT_EQ(SanitiseForTerminal("\xe2\x82\xc2\x9b"),
            std::string(kReplacement) + kReplacement);
  EXPECT_EQ(SanitiseForTerminal("\xe2\x1b[31m"),
            std::string(kReplacement) + kReplacement + "[31m");
}

}  // namespace
}  // namespace reprise
