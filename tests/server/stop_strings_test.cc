#include "server/stop_strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/support/fake_tokenizer.h"

namespace reprise {
namespace {

using testing::ElementsAre;

std::optional<std::pair<size_t, size_t>> Match(
    std::string_view text, const std::vector<std::string>& stops) {
  const StopScan scan = ScanForStop(text, stops);
  if (!scan.match.has_value()) return std::nullopt;
  EXPECT_EQ(text.substr(scan.match->begin, scan.match->end - scan.match->begin),
            stops[scan.match->stop]);
  return std::pair(scan.match->begin, scan.match->end);
}

using Range = std::pair<size_t, size_t>;

TEST(ScanForStopTest, FindsTheFirstAndOfThoseTheLongest) {
  EXPECT_EQ(Match("xxabcxx", {"abc"}), Range(2, 5));
  EXPECT_EQ(Match("abab", {"ab"}), Range(0, 2));
  EXPECT_EQ(Match("xabcd", {"bc", "abcd"}), Range(1, 5));
  EXPECT_EQ(Match("xabcd", {"ab", "abcd", "abc"}), Range(1, 5));
  EXPECT_EQ(Match("xabc", {"ab", "abcd"}), Range(1, 3));  // does not wait
  EXPECT_EQ(Match("abx", {"bx", "abc"}), Range(1, 3));
  EXPECT_EQ(Match("xyz", {"abc"}), std::nullopt);
  EXPECT_EQ(Match("", {"abc"}), std::nullopt);
  EXPECT_EQ(Match("abc", {}), std::nullopt);
}

TEST(ScanForStopTest, HoldsBackWhatMayBeABeginning) {
  const auto undecided = [](std::string_view text,
                            const std::vector<std::string>& stops) {
    return ScanForStop(text, stops).undecided;
  };
  EXPECT_EQ(undecided("xxab", {"abc"}), 2u);
  EXPECT_EQ(undecided("xxab", {"bc"}), 3u);
  EXPECT_EQ(undecided("xxab", {"bc", "abd"}), 2u);
  EXPECT_EQ(undecided("xxab", {"xyz"}), 4u);
  EXPECT_EQ(undecided("aa", {"aab"}), 0u);
  EXPECT_EQ(undecided("aaa", {"aab"}), 1u);
  EXPECT_EQ(undecided("abx", {"abc"}), 3u);
  EXPECT_EQ(undecided("", {"abc"}), 0u);
  EXPECT_EQ(undecided("abc", {}), 3u);
}

// Text in random pieces, scanned as a stream, against a search through all of
// the text so far after each piece.
TEST(ScanForStopTest, AgreesWithASearchThroughTheWholeText) {
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return random() % n; };
  const auto word = [&](size_t size) {
    std::string text;
    for (size_t i = 0; i < size; ++i) {
      text += static_cast<char>('a' + below(3));
    }
    return text;
  };
  int matches = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops(1 + below(4));
    for (std::string& stop : stops) stop = word(1 + below(6));
    std::string all, held, shown;
    for (int piece = 0; piece < 12; ++piece) {
      const std::string text = word(below(5));
      all += text;
      held += text;
      size_t begin = std::string::npos, size = 0;
      for (const std::string& stop : stops) {
        const size_t at = all.find(stop);
        if (at < begin || (at == begin && stop.size() > size)) {
          begin = at;
          size = stop.size();
        }
      }
      const StopScan scan = ScanForStop(held, stops);
      ASSERT_EQ(scan.match.has_value(), begin != std::string::npos);
      if (scan.match.has_value()) {
        ++matches;
        EXPECT_EQ(shown.size() + scan.match->begin, begin);
        EXPECT_EQ(scan.match->end - scan.match->begin, size);
        break;
      }
      shown += held.substr(0, scan.undecided);
      held.erase(0, scan.undecided);
    }
  }
  EXPECT_GT(matches, 1000);
}

TEST(EncodeExactlyTest, UsesTheTokenizersOwnTokens) {
  FakeTokenizer tokenizer;
  auto ids = EncodeExactly(tokenizer, "abcd");
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*ids, *tokenizer.Encode("abcd", /*allow_special=*/false));
  EXPECT_TRUE(EncodeExactly(tokenizer, "")->empty());
}

// Adds a space in front, as some tokenizers do.
class SpaceAddingTokenizer : public FakeTokenizer {
 public:
  using FakeTokenizer::FakeTokenizer;
  absl::StatusOr<std::vector<int32_t>> EncodeUpTo(
      std::string_view text, bool allow_special,
      size_t max_tokens) const override {
    return FakeTokenizer::EncodeUpTo(" " + std::string(text), allow_special,
                                     max_tokens);
  }
};

TEST(EncodeExactlyTest, KeepsTheBytesWhereTheTokenizerDoesNot) {
  SpaceAddingTokenizer tokenizer({"<s>", "<u>", "a", "b", "ab", " "});
  auto ids = EncodeExactly(tokenizer, "aba");
  ASSERT_TRUE(ids.ok());
  EXPECT_THAT(*ids, ElementsAre(4, 2));
}

TEST(EncodeExactlyTest, RefusesTextThatNoTokensMake) {
  FakeTokenizer tokenizer;
  EXPECT_TRUE(
      absl::IsFailedPrecondition(EncodeExactly(tokenizer, "azb").status()));
}

}  // namespace
}  // namespace reprise
