#include "engine/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace reprise {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Split(std::vector<PreTokenizerStep> steps,
                               std::string_view text, bool at_start = true) {
  const auto pre_tokenizer = PreTokenizer::Create(std::move(steps));
  EXPECT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status();
  PatternBudget budget(text.size());
  std::vector<std::string> pieces;
  const absl::Status status =
      pre_tokenizer->Split(text, at_start, budget, [&](std::string_view piece) {
        pieces.emplace_back(piece);
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  return pieces;
}

PreTokenizerStep At(const char* pattern, SplitBehavior behavior,
                    bool invert = false) {
  PreTokenizerStep step;
  step.pattern = pattern;
  step.behavior = behavior;
  step.invert = invert;
  return step;
}

PreTokenizerStep Metaspace(PrependScheme prepend, bool split) {
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::Kind::kMetaspace;
  step.metaspace = "_";
  step.prepend = prepend;
  step.split = split;
  return step;
}

// The examples of SplitDelimiterBehavior in the tokenizers library's manual.
TEST(PreTokenizerTest, SplitsTheExamplesOfTheLibrary) {
  const std::string text = "the-final--countdown";
  EXPECT_THAT(Split({At("-", SplitBehavior::kRemoved)}, text),
              ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(Split({At("-", SplitBehavior::kIsolated)}, text),
              ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(Split({At("-", SplitBehavior::kMergedWithPrevious)}, text),
              ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(Split({At("-", SplitBehavior::kMergedWithNext)}, text),
              ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(Split({At("-", SplitBehavior::kContiguous)}, text),
              ElementsAre("the", "-", "final", "--", "countdown"));
}

TEST(PreTokenizerTest, KeepsMatchesAtTheEnds) {
  EXPECT_THAT(Split({At("-", SplitBehavior::kMergedWithPrevious)}, "--a-"),
              ElementsAre("-", "-", "a-"));
  EXPECT_THAT(Split({At("-", SplitBehavior::kMergedWithNext)}, "-a--"),
              ElementsAre("-a", "-", "-"));
  EXPECT_THAT(Split({At("-", SplitBehavior::kRemoved)}, "--"), ElementsAre());
}

TEST(PreTokenizerTest, InvertedMatchesAreWhatIsBetween) {
  EXPECT_THAT(Split({At("[a-z]+", SplitBehavior::kRemoved, true)}, "ab-c--"),
              ElementsAre("ab", "c"));
  EXPECT_THAT(Split({At("[a-z]", SplitBehavior::kContiguous, true)}, "ab--c"),
              ElementsAre("ab", "--", "c"));
}

TEST(PreTokenizerTest, StepsWorkOnThePiecesOfTheOnesBefore) {
  PreTokenizerStep prefix;
  prefix.kind = PreTokenizerStep::Kind::kPrefixSpace;
  EXPECT_THAT(Split({At("-", SplitBehavior::kIsolated), prefix}, "a- b"),
              ElementsAre(" a", " -", " b"));
  EXPECT_THAT(Split({prefix, At("[ab]", SplitBehavior::kIsolated)}, "ab"),
              ElementsAre(" ", "a", "b"));
}

TEST(PreTokenizerTest, MetaspaceIsFirstOnlyWhereTheTextIs) {
  const PreTokenizerStep cut = At("-", SplitBehavior::kIsolated);
  const auto first = Metaspace(PrependScheme::kFirst, true);
  EXPECT_THAT(Split({cut, first}, "a-b"), ElementsAre("_a", "-", "b"));
  EXPECT_THAT(Split({cut, first}, "a-b", /*at_start=*/false),
              ElementsAre("a", "-", "b"));
  EXPECT_THAT(Split({cut, Metaspace(PrependScheme::kAlways, true)}, "a-b"),
              ElementsAre("_a", "_-", "_b"));
  EXPECT_THAT(Split({Metaspace(PrependScheme::kAlways, true)}, "_a b_"),
              ElementsAre("_a", "_b", "_"));
}

TEST(PreTokenizerTest, StopsAtTheFirstError) {
  const auto pre_tokenizer =
      PreTokenizer::Create({At("-", SplitBehavior::kContiguous)});
  ASSERT_TRUE(pre_tokenizer.ok());
  PatternBudget budget(5);
  int pieces = 0;
  const absl::Status status =
      pre_tokenizer->Split("a-b-c", true, budget, [&](std::string_view) {
        return ++pieces == 2 ? absl::AbortedError("x") : absl::OkStatus();
      });
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(pieces, 2);
}

}  // namespace
}  // namespace reprise
