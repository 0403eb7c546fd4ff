#include "engine/text_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/base/utf8.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TextPattern Compile(std::string_view pattern, bool literal = false) {
  auto compiled = TextPattern::Compile(pattern, literal);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return *std::move(compiled);
}

// The pieces; those that match in brackets.
absl::StatusOr<std::vector<std::string>> Split(const TextPattern& pattern,
                                               std::string_view text) {
  PatternBudget budget(text.size());
  std::vector<std::string> pieces;
  const absl::Status status =
      pattern.Split(text, budget, [&](std::string_view piece, bool matched) {
        pieces.push_back(matched ? "[" + std::string(piece) + "]"
                                 : std::string(piece));
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  return pieces;
}

// As Oniguruma has it, which the tokenizers library uses.
TEST(TextPatternTest, WordsHaveTheirCombiningMarks) {
  EXPECT_THAT(*Split(Compile("\\w+"), "e\u0301a_1 \u0967\u00BD"),
              ElementsAre("[e\u0301a_1]", " ", "[\u0967]", "\u00BD"));
  EXPECT_THAT(*Split(Compile("[^\\s\\w]+"), "a\u0301 +-\u00BD"),
              ElementsAre("a\u0301 ", "[+-\u00BD]"));
  EXPECT_THAT(*Split(Compile("\\W+"), "a\u0301+b"),
              ElementsAre("a\u0301", "[+]", "b"));
  EXPECT_THAT(*Split(Compile("[[:digit:]\\w]+"), "a1-"),
              ElementsAre("[a1]", "-"));
  EXPECT_THAT(*Split(Compile("[]\\w]+"), "a]-"), ElementsAre("[a]]", "-"));
  EXPECT_THAT(*Split(Compile("[^]\\w]+"), "a]-"), ElementsAre("a]", "[-]"));
  EXPECT_THAT(*Split(Compile("\\[\\w"), "[a"), ElementsAre("[[a]"));
}

TEST(TextPatternTest, CutsAtMatches) {
  const TextPattern digits = Compile("\\p{N}+");
  EXPECT_THAT(*Split(digits, "a12b3"), ElementsAre("a", "[12]", "b", "[3]"));
  EXPECT_THAT(*Split(digits, "12a"), ElementsAre("[12]", "a"));
  EXPECT_THAT(*Split(digits, ""), ElementsAre());
  EXPECT_THAT(*Split(digits, std::string_view("\0x", 2)),
              ElementsAre(std::string("\0x", 2)));
}

TEST(TextPatternTest, CutsAtEmptyMatchesWithoutEmptyPieces) {
  EXPECT_THAT(*Split(Compile("(?=b)|x*"),
                     "\xC3\xA9"
                     "bc"),
              ElementsAre("\xC3\xA9", "b", "c"));
  EXPECT_THAT(*Split(Compile("$"), "ab"), ElementsAre("ab"));
}

TEST(TextPatternTest, TakesALiteralAsItIs) {
  EXPECT_THAT(*Split(Compile(".*", /*literal=*/true), "a.*.b"),
              ElementsAre("a", "[.*]", ".b"));
}

// The pattern of Llama 3; pieces as Python's regex module finds them.
TEST(TextPatternTest, CutsAsThePatternOfLlama3Does) {
  const TextPattern pattern = Compile(
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
      "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+");
  EXPECT_THAT(
      *Split(pattern,
             "I'VE 12345 \u00FCber-\u4F60\u597D  x!!\r\n\n\tEnd "
             "\u180E\u00A0z\u2003"),
      ElementsAre("[I]", "['VE]", "[ ]", "[123]", "[45]", "[ \u00FCber]",
                  "[-\u4F60\u597D]", "[ ]", "[ x]", "[!!\r\n\n]", "[\tEnd]",
                  "[ \u180E]", "[\u00A0z]", "[\u2003]"));
}

// U+180E is no white space since Unicode 6.3, but PCRE2's \s takes it.
TEST(TextPatternTest, TakesUnicodeWhiteSpaceForSpaces) {
  EXPECT_THAT(*Split(Compile("\\s"), "\u180E\u00A0\u3000\u0085"),
              ElementsAre("\u180E", "[\u00A0]", "[\u3000]", "[\u0085]"));
  EXPECT_THAT(*Split(Compile("[^\\s]+"), "a\u180E "),
              ElementsAre("[a\u180E]", " "));
  EXPECT_THAT(*Split(Compile("\\S+"), "a\u180E "),
              ElementsAre("[a\u180E]", " "));
  EXPECT_THAT(*Split(Compile("\\\\s"), "\\s "), ElementsAre("[\\s]", " "));
}

TEST(TextPatternTest, ReportsTheOffsetOfAMistake) {
  for (const auto& [pattern, offset] :
       std::vector<std::pair<std::string, std::string>>{
           {"\\s\\s(a", "offset 6"},
           {"a{2}[b", "offset 6"},
           {"\\p{Nope}", "offset 8"},
           {"a\\Cb", "offset 3"},
           {"\xFF", "offset 0"}}) {
    const absl::Status status =
        TextPattern::Compile(pattern, /*literal=*/false).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << pattern;
    EXPECT_THAT(status.message(), HasSubstr(offset));
  }
  EXPECT_FALSE(
      TextPattern::Compile(std::string(65537, 'a'), /*literal=*/false).ok());
}

// Exponential, polynomial, and quadratic by rescanning (which PCRE2's own
// limits do not count).
TEST(TextPatternTest, GivesUpOnPatternsThatTakeTooLong) {
  const std::string text = std::string(200000, 'a') + "!x";
  for (const std::string pattern : {"(a+)+x", "(?:a|a)*x", "a*a*a*x", "a++x",
                                    "(?=[^!]*+)b|\\Bx", "(?:(?=a*)a)+x"}) {
    const auto pieces = Split(Compile(pattern), text);
    ASSERT_FALSE(pieces.ok()) << pattern;
    EXPECT_EQ(pieces.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(pieces.status().message(), HasSubstr("gives up"));
  }
}

// Too deep for the compiled code's stack, not for the interpreter's heap.
TEST(TextPatternTest, MatchesDeepGroups) {
  const std::string text(30000, 'a');
  EXPECT_THAT(*Split(Compile("(?:(a)|b)+"), text),
              ElementsAre("[" + text + "]"));
}

TEST(TextPatternTest, StopsAtTheFirstErrorOfItsCaller) {
  PatternBudget budget(3);
  int calls = 0;
  const absl::Status status =
      Compile("b").Split("abc", budget, [&](std::string_view, bool) {
        ++calls;
        return absl::InternalError("stop");
      });
  EXPECT_EQ(status.message(), "stop");
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace reprise
