// Stop strings: the session ends where the text that was shown ends, wherever
// in the tokens that is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "engine/base/utf8.h"
#include "server/scheduler.h"
#include "tests/support/reference_completion.h"
#include "tests/support/reference_stop.h"
#include "tests/support/scheduler_rig.h"

namespace reprise {
namespace {

using testing::ElementsAre;

// A piece of `text`, of whole characters, or something that is not in it.
std::string RandomStop(std::mt19937& random, const std::string& text) {
  if (!text.empty() && random() % 4 != 0) {
    const std::string piece =
        text.substr(random() % text.size(), 1 + random() % 6);
    if (FindInvalidUtf8(piece) == std::string::npos) return piece;
  }
  std::string stop(1 + random() % 3, ' ');
  for (char& c : stop) c = static_cast<char>('a' + random() % 4);
  return stop;
}

class StopStringTest : public testing::TestWithParam<bool> {};

TEST_P(StopStringTest, AgreesWithASearchThroughTheTextOfAPlainLoop) {
  std::mt19937 random(GetParam());
  int inside = 0, between = 0, none = 0;
  for (int round = 0; round < 600; ++round) {
    SchedulerRig rig;
    TurnRequest request = MakeTurn("s", rig.Encode("ab cd\n"), 30, random());
    request.include_stop = GetParam();
    if (random() % 3 == 0) {
      // More pieces of characters: some become whole, some are broken.
      for (int32_t id = 18; id < 23; ++id) {
        request.sampling.logit_bias.push_back({id, 3.0f});
      }
    }
    ReferenceSession session;
    const std::vector<int32_t> output = ReferenceTurn(request, session);
    const std::string all = rig.TextOf(output);
    for (size_t i = 0; i < 1 + random() % 3; ++i) {
      request.stop.push_back(RandomStop(random, all));
    }
    if (random() % 3 == 0) request.min_new_tokens = random() % 6;
    const ReferenceStop cut = ReferenceCut(rig.tokenizer, request, output);

    Answer answer = rig.Run(request);
    ASSERT_EQ(answer.status, absl::OkStatus());
    EXPECT_EQ(answer.text(), cut.text);
    EXPECT_EQ(answer.finished.at(0).usage.completion_tokens,
              static_cast<int64_t>(cut.tokens));
    const auto after = rig.Look("s");
    const std::vector<int32_t> kept_prompt(
        after.tokens.begin(), after.tokens.begin() + request.prompt.size());
    EXPECT_EQ(kept_prompt, request.prompt);
    const std::vector<int32_t> added(
        after.tokens.begin() + request.prompt.size(), after.tokens.end());
    if (!cut.found) {
      ++none;
      EXPECT_EQ(answer.reason(), FinishReason::kLength);
      EXPECT_EQ(added, output);
      continue;
    }
    (cut.between_tokens ? between : inside) += 1;
    EXPECT_EQ(answer.reason(), FinishReason::kStopString);
    EXPECT_EQ(answer.finished.at(0).matched_stop, cut.stop);
    // The session: the tokens before the cut as they were sampled, and what is
    // left of the text.
    std::vector<int32_t> expected = cut.kept;
    for (int32_t token : rig.Encode(cut.rest)) expected.push_back(token);
    EXPECT_EQ(added, expected);
    EXPECT_EQ(rig.TextOf(added), cut.text);
    EXPECT_EQ(after.record.pending_text, "");
    EXPECT_EQ(answer.ids[0], cut.kept);
    // It goes on from there as a session of these tokens does.
    TurnRequest more = MakeTurn("s", {}, 5);
    more.sampling.temperature = 0;
    ReferenceSession reference;
    reference.tokens = after.tokens;
    EXPECT_EQ(rig.Run(more).ids[0], ReferenceTurn(more, reference));
  }
  EXPECT_GT(inside, 50);
  EXPECT_GT(between, 50);
  EXPECT_GT(none, 50);
}

INSTANTIATE_TEST_SUITE_P(IncludeStop, StopStringTest, testing::Bool());

TEST(SchedulerStopTest, ACutBetweenTokensIsTheSameSessionAsOneThatEndedThere) {
  std::mt19937 random(3);
  int cases = 0;
  for (int round = 0; round < 300; ++round) {
    SchedulerRig rig;
    TurnRequest request = MakeTurn("stopped", rig.Encode("ab"), 30, random());
    request.sampling.repetition_penalty = 1.2f;
    ReferenceSession session;
    const std::vector<int32_t> output = ReferenceTurn(request, session);
    request.stop = {RandomStop(random, rig.TextOf(output))};
    const ReferenceStop cut = ReferenceCut(rig.tokenizer, request, output);
    if (!cut.found || !cut.between_tokens || cut.kept.empty()) continue;
    ++cases;
    Answer answer = rig.Run(request);
    request.session->id = "ended";
    request.stop.clear();
    request.max_new_tokens = static_cast<int64_t>(cut.kept.size());
    rig.Run(request);
    const auto stopped = rig.Look("stopped");
    const auto ended = rig.Look("ended");
    EXPECT_EQ(stopped.state.Hash(), ended.state.Hash());
    EXPECT_EQ(stopped.record.position, ended.record.position);
    EXPECT_EQ(stopped.record.pending_token, ended.record.pending_token);
    EXPECT_EQ(stopped.record.sampler.draws, ended.record.sampler.draws);
    EXPECT_EQ(stopped.record.sampler.occurrences.size(),
              ended.record.sampler.occurrences.size());
  }
  EXPECT_GT(cases, 30);
}

TEST(SchedulerStopTest, ACutBetweenTokensComputesNothingAgain) {
  SchedulerRig rig;
  TurnRequest request = MakeTurn("s", rig.Encode("ab"), 10);
  request.sampling.logit_bias = {{*rig.tokenizer.FindToken("cc"), 100.0f}};
  request.stop = {"cc"};
  Answer answer = rig.Run(request);
  EXPECT_EQ(answer.text(), "");
  EXPECT_EQ(rig.engine.total_rows, 1);
  EXPECT_EQ(rig.Look("s").tokens, request.prompt);
}

TEST(SchedulerStopTest, ACutInsideATokenReadsWhatIsLeftOfIt) {
  SchedulerRig rig;
  const auto prompt = rig.Encode("d");
  TurnRequest request = MakeTurn("s", prompt, 10);
  request.sampling.logit_bias = {{*rig.tokenizer.FindToken("abc"), 100.0f}};
  request.stop = {"c"};
  Answer answer = rig.Run(request);
  EXPECT_EQ(answer.text(), "ab");
  EXPECT_TRUE(answer.ids[0].empty());  // no whole token of it was shown
  EXPECT_THAT(rig.Look("s").tokens,
              ElementsAre(prompt[0], *rig.tokenizer.FindToken("ab")));
}

TEST(SchedulerStopTest, TextIsHeldBackOnlyWhileItMayBeABeginning) {
  SchedulerRig rig;
  TurnRequest request = MakeTurn("s", rig.Encode("d"), 3);
  request.sampling.logit_bias = {{*rig.tokenizer.FindToken("ab"), 100.0f}};
  request.stop = {"abaX"};  // "ab" may begin it, "abab" does not but its end
  Answer answer = rig.Run(request);
  ASSERT_EQ(answer.deltas.size(), 2u);
  EXPECT_EQ(answer.deltas[0].text, "ab");
  EXPECT_EQ(answer.deltas[0].usage.completion_tokens, 2);
  EXPECT_EQ(answer.deltas[1].text, "abab");  // the end sets the last one free
}

TEST(SchedulerStopTest, TheFirstCharacterMayHaveBegunInTheTurnBefore) {
  for (const bool include : {false, true}) {
    SchedulerRig rig;
    TurnRequest first = MakeTurn("s", rig.Encode("ab"), 1);
    const int32_t lead = *rig.tokenizer.FindToken("\xC3");
    const int32_t trail = *rig.tokenizer.FindToken("\xA9");
    first.sampling.logit_bias = {{lead, 100.0f}};
    rig.Run(first);
    TurnRequest second = MakeTurn("s", {}, 5);
    second.sampling.logit_bias = {{trail, 100.0f}};
    second.stop = {"\xC3\xA9"};
    second.include_stop = include;
    Answer answer = rig.Run(second);
    EXPECT_EQ(answer.reason(), FinishReason::kStopString);
    const auto session = rig.Look("s");
    if (include) {
      EXPECT_EQ(answer.text(), "\xC3\xA9");
      EXPECT_EQ(session.tokens.back(), trail);
      EXPECT_EQ(session.record.pending_text, "");
    } else {
      EXPECT_EQ(answer.text(), "");
      EXPECT_EQ(session.tokens.back(), lead);
      EXPECT_EQ(session.record.pending_text, "\xC3");
      EXPECT_EQ(session.record.revision, 1u);  // nothing was added
    }
  }
}

// The session has the first byte of a character; the next token brings more
// text with its last one, or breaks it, and the cut is inside that token.
TEST(SchedulerStopTest, ACutBehindACharacterOfTwoTurnsDoublesNoBytes) {
  struct Case {
    std::string piece;
    std::string text;
    std::vector<int32_t> added;
  };
  const std::vector<std::string> pieces = {"<eos>",
                                           "<user>",
                                           "a",
                                           "b",
                                           "\xC3",
                                           "\xA9",
                                           "\xA9"
                                           "ab",
                                           "ab"};
  const std::vector<Case> cases = {{"\xA9"
                                    "ab",
                                    "\xC3\xA9"
                                    "a",
                                    {5, 2}},
                                   {"ab",
                                    "\xEF\xBF\xBD"
                                    "a",
                                    {2}}};
  for (const Case& c : cases) {
    SchedulerRig::Options options;
    options.tokenizer = FakeTokenizer(pieces);
    options.engine.vocab_size = 8;
    SchedulerRig rig(std::move(options));
    TurnRequest first = MakeTurn("s", {2}, 1);
    first.sampling.logit_bias = {{4, 100.0f}};
    rig.Run(first);
    TurnRequest second = MakeTurn("s", {}, 5);
    second.sampling.logit_bias = {{*rig.tokenizer.FindToken(c.piece), 100.0f}};
    second.stop = {"b"};
    EXPECT_EQ(rig.Run(second).text(), c.text);
    std::vector<int32_t> expected = {2, 4};
    expected.insert(expected.end(), c.added.begin(), c.added.end());
    EXPECT_EQ(rig.Look("s").tokens, expected);
    EXPECT_EQ(rig.Look("s").record.pending_text, "");
  }
}

// The same with a tokenizer that shows U+FFFD for every byte.
TEST(SchedulerStopTest, ACutBehindABrokenCharacterDropsAllOfItsSigns) {
  SchedulerRig::Options options;
  options.tokenizer =
      FakeTokenizer({"<eos>", "<user>", "a", "b", "\xF0\x9F", "ab"});
  options.tokenizer.rules.replace_each_byte = true;
  options.engine.vocab_size = 6;
  SchedulerRig rig(std::move(options));
  TurnRequest first = MakeTurn("s", {2}, 1);
  first.sampling.logit_bias = {{4, 100.0f}};
  rig.Run(first);
  TurnRequest second = MakeTurn("s", {}, 5);
  second.sampling.logit_bias = {{5, 100.0f}};
  second.stop = {"b"};
  EXPECT_EQ(rig.Run(second).text(),
            "\xEF\xBF\xBD\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(rig.Look("s").tokens, (std::vector<int32_t>{2, 4, 2}));
}

TEST(SchedulerStopTest, TextThatNoTokensMakeFailsTheTurnAndKeepsTheSession) {
  SchedulerRig::Options options;
  options.tokenizer = FakeTokenizer({"<eos>", "<user>", "ab", "x"});
  options.engine.vocab_size = 4;
  SchedulerRig rig(std::move(options));
  rig.Run(MakeTurn("s", {3}, 0));
  TurnRequest request = MakeTurn("s", {3}, 10);
  request.sampling.logit_bias = {{2, 100.0f}};
  request.stop = {"b"};
  Answer answer = rig.Run(request);
  EXPECT_TRUE(absl::IsFailedPrecondition(*answer.status));
  EXPECT_TRUE(answer.finished.empty());
  EXPECT_THAT(rig.Look("s").tokens, ElementsAre(3));
  EXPECT_EQ(rig.Look("s").record.revision, 1u);
}

TEST(SchedulerStopTest, StatelessRequestsStopAtTheSamePlace) {
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    SchedulerRig rig;
    TurnRequest request = MakeTurn("", rig.Encode("ab"), 30, random());
    ReferenceSession session;
    const std::vector<int32_t> output = ReferenceTurn(request, session);
    request.stop = {RandomStop(random, rig.TextOf(output))};
    EXPECT_EQ(rig.Run(request).text(),
              ReferenceCut(rig.tokenizer, request, output).text);
  }
}

}  // namespace
}  // namespace reprise
