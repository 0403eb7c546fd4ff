// What is shown: text, tokens, log-probabilities, usage; and the ends that the
// model itself brings about.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "engine/base/utf8.h"
#include "server/scheduler.h"
#include "tests/support/reference_completion.h"
#include "tests/support/scheduler_rig.h"

namespace reprise {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int32_t kEos = FakeTokenizer::kEos;

// Makes `token` certain.
void Force(TurnRequest& request, int32_t token) {
  request.sampling.logit_bias = {{token, 100.0f}};
}

TEST(SchedulerOutputTest, EndOfTextIsKeptInTheSessionButNotShown) {
  SchedulerRig rig;
  TurnRequest request = MakeTurn("s", rig.Encode("ab"), 20);
  request.eos_tokens = {kEos};
  Force(request, kEos);
  request.logprobs = 0;
  Answer answer = rig.Run(request);
  EXPECT_EQ(answer.reason(), FinishReason::kStop);
  EXPECT_EQ(answer.finished.at(0).matched_token, std::nullopt);
  EXPECT_EQ(answer.text(), "");
  EXPECT_THAT(answer.ids[0], ElementsAre(kEos));
  EXPECT_THAT(answer.logprobs[0], SizeIs(1));
  EXPECT_EQ(rig.Look("s").record.pending_token, kEos);
}

TEST(SchedulerOutputTest, AStopTokenIsKeptButItsTextIsNotShown) {
  SchedulerRig rig;
  const int32_t token = *rig.tokenizer.FindToken("cc");
  TurnRequest request = MakeTurn("s", rig.Encode("ab"), 20);
  request.eos_tokens = {kEos, token};
  request.stop_tokens = {token};
  Force(request, token);
  Answer answer = rig.Run(request);
  EXPECT_EQ(answer.reason(), FinishReason::kStopToken);
  EXPECT_EQ(answer.finished.at(0).matched_token, token);
  EXPECT_EQ(answer.text(), "");
  EXPECT_EQ(rig.Look("s").record.pending_token, token);
}

TEST(SchedulerOutputTest, MinNewTokensBansTheEnd) {
  for (int64_t min : {1, 2, 5}) {
    SchedulerRig rig;
    TurnRequest request = MakeTurn("", rig.Encode("ab"), 20);
    request.eos_tokens = {kEos};
    request.stop_tokens = {FakeTokenizer::kUser};
    request.min_new_tokens = min;
    Force(request, kEos);
    Answer answer = rig.Run(request);
    ASSERT_THAT(answer.ids[0], SizeIs(min + 1));
    for (int64_t i = 0; i < min; ++i) {
      EXPECT_NE(answer.ids[0][i], kEos);
      EXPECT_NE(answer.ids[0][i], FakeTokenizer::kUser);
    }
    EXPECT_EQ(answer.ids[0].back(), kEos);
  }
}

TEST(SchedulerOutputTest, LengthEndsWithExactlyThatManyTokens) {
  for (int64_t max : {1, 2, 17}) {
    SchedulerRig rig;
    Answer answer = rig.Run(MakeTurn("", rig.Encode("ab"), max));
    EXPECT_EQ(answer.reason(), FinishReason::kLength);
    EXPECT_THAT(answer.ids[0], SizeIs(max));
    EXPECT_EQ(answer.finished.at(0).usage.completion_tokens, max);
  }
}

TEST(SchedulerOutputTest, EveryDeltaIsWholeUtf8AndUsageGrows) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SchedulerRig rig;
    TurnRequest request = MakeTurn("", rig.Encode("ab"), 40, seed);
    for (int32_t id = 18; id < 26; ++id) {  // pieces of characters
      request.sampling.logit_bias.push_back({id, 2.0f});
    }
    Answer answer = rig.Run(request);
    int64_t tokens = 0;
    std::vector<int32_t> ids;
    for (const DeltaEvent& delta : answer.deltas) {
      EXPECT_EQ(FindInvalidUtf8(delta.text), std::string_view::npos);
      EXPECT_GT(delta.usage.completion_tokens, tokens);
      tokens = delta.usage.completion_tokens;
      EXPECT_EQ(delta.usage.prompt_tokens, 1);
      ids.insert(ids.end(), delta.token_ids.begin(), delta.token_ids.end());
      // Token ids come with their text.
      EXPECT_TRUE(answer.text().starts_with(rig.TextOf(ids)));
    }
    EXPECT_EQ(answer.text(), rig.TextOf(ids));
    EXPECT_THAT(ids, SizeIs(40));
  }
}

// Behind special tokens alone the completion begins the text, and loses the
// space that the tokenizer puts there; behind anything else it goes on.
TEST(SchedulerOutputTest, OnlyATextThatBeginsLosesItsFirstSpace) {
  SchedulerRig::Options options;
  options.tokenizer.rules.leading_spaces = 1;
  SchedulerRig rig(std::move(options));
  const int32_t space = *rig.tokenizer.FindToken(" ");
  const auto complete = [&](const std::string& id, std::vector<int32_t> prompt,
                            int64_t count) {
    TurnRequest request = MakeTurn(id, std::move(prompt), count);
    Force(request, space);
    return rig.Run(request).text();
  };
  EXPECT_EQ(complete("", {FakeTokenizer::kUser}, 3), "  ");
  EXPECT_EQ(complete("", rig.Encode("a"), 3), "   ");
  EXPECT_EQ(complete("", {FakeTokenizer::kUser, rig.Encode("a")[0]}, 3), "   ");
  // Over two turns: what was read before counts.
  EXPECT_EQ(complete("s", {FakeTokenizer::kUser}, 0), "");
  EXPECT_EQ(complete("s", {}, 2), " ");
  EXPECT_EQ(complete("s", {}, 2), "  ");
  EXPECT_EQ(complete("s", {FakeTokenizer::kUser}, 2), "  ");
}

TEST(SchedulerOutputTest, AnUnfinishedCharacterWaitsForTheNextTurn) {
  SchedulerRig rig;
  const int32_t lead = *rig.tokenizer.FindToken("\xC3");
  const int32_t trail = *rig.tokenizer.FindToken("\xA9");
  TurnRequest first = MakeTurn("s", rig.Encode("ab"), 1);
  Force(first, lead);
  EXPECT_EQ(rig.Run(first).text(), "");
  EXPECT_EQ(rig.Look("s").record.pending_text, "\xC3");
  TurnRequest second = MakeTurn("s", {}, 1);
  Force(second, trail);
  EXPECT_EQ(rig.Run(second).text(), "\xC3\xA9");
  EXPECT_EQ(rig.Look("s").record.pending_text, "");
}

TEST(SchedulerOutputTest, InputEndsAnUnfinishedCharacter) {
  SchedulerRig rig;
  TurnRequest first = MakeTurn("s", rig.Encode("ab"), 1);
  Force(first, *rig.tokenizer.FindToken("\xC3"));
  rig.Run(first);
  TurnRequest second = MakeTurn("s", rig.Encode("c"), 1);
  Force(second, *rig.tokenizer.FindToken("e"));
  EXPECT_EQ(rig.Run(second).text(), "e");
}

TEST(SchedulerOutputTest, OnlyWhatWasAskedForIsSent) {
  SchedulerRig rig;
  TurnRequest request = MakeTurn("s", rig.Encode("ab"), 5);
  request.want_text = false;
  request.want_token_ids = false;
  Answer answer = rig.Run(request);
  EXPECT_THAT(answer.deltas, IsEmpty());
  EXPECT_EQ(answer.finished.at(0).usage.completion_tokens, 5);
  EXPECT_EQ(rig.Look("s").tokens.size(), 6u);
}

// log softmax in double.
double Logprob(std::span<const float> logits, int32_t token) {
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit));
  return logits[token] - std::log(sum);
}

TEST(SchedulerOutputTest, LogprobsAreOfTheModelsOwnDistribution) {
  SchedulerRig rig;
  TurnRequest request = MakeTurn("", rig.Encode("ab cd"), 12);
  request.sampling.temperature = 0.5;
  request.logprobs = 3;
  Answer answer = rig.Run(request);
  ASSERT_THAT(answer.logprobs[0], SizeIs(12));
  std::vector<int32_t> tokens = request.prompt;
  for (const SampledToken& sampled : answer.logprobs[0]) {
    const std::vector<float> logits = ReferenceLogits(tokens);
    // Float sums over 32 terms: 32 roundings of 2^-24, and one of the result.
    EXPECT_NEAR(sampled.logprob, Logprob(logits, sampled.token), 1e-5);
    ASSERT_THAT(sampled.top, SizeIs(3));
    EXPECT_EQ(sampled.top[0].token,
              std::max_element(logits.begin(), logits.end()) - logits.begin());
    tokens.push_back(sampled.token);
  }
}

TEST(SchedulerOutputTest, PromptLogprobsLeaveOutOnlyTheSessionsFirstToken) {
  std::mt19937 random(1);
  SchedulerRig::Options options;
  options.scheduler.prefill_rows = 64;
  SchedulerRig rig(std::move(options));
  ReferenceSession session;
  for (size_t size : {1, 2, 150, 1, 65, 0}) {
    TurnRequest request = MakeTurn("s", {}, 3);
    for (size_t i = 0; i < size; ++i) {
      request.prompt.push_back(static_cast<int32_t>(random() % 32));
    }
    request.prompt_logprobs = PromptLogprobs::kWithStarted;
    request.logprobs = 1;
    Answer answer = rig.Run(request);
    ASSERT_TRUE(answer.started.has_value());
    std::vector<int32_t> tokens = session.tokens;
    size_t entry = 0;
    for (int32_t token : request.prompt) {
      if (!tokens.empty()) {
        ASSERT_LT(entry, answer.started->prompt_logprobs.size());
        const SampledToken& scored = answer.started->prompt_logprobs[entry++];
        EXPECT_EQ(scored.token, token);
        EXPECT_NEAR(scored.logprob, Logprob(ReferenceLogits(tokens), token),
                    1e-5);  // as above
        EXPECT_THAT(scored.top, SizeIs(1));
      }
      tokens.push_back(token);
    }
    EXPECT_EQ(entry, answer.started->prompt_logprobs.size());
    EXPECT_EQ(answer.ids[0], ReferenceTurn(request, session));
  }
}

TEST(SchedulerOutputTest, TimingsAndMetricsTellWhatHappened) {
  SchedulerRig::Options options;
  options.scheduler.prefill_rows = 64;
  SchedulerRig rig(std::move(options));
  rig.engine.before_step = [&](auto) { rig.clock.AdvanceMs(5); };
  auto stream = rig.Submit(MakeTurn("s", std::vector<int32_t>(129, 4), 11));
  rig.clock.AdvanceMs(20);
  rig.RunUntilIdle();
  Answer answer;
  answer.Read(*stream);
  const RequestTimings& timings = answer.finished.at(0).timings;
  EXPECT_EQ(timings.queue_us, 20'000);
  EXPECT_EQ(timings.prefill_us, 10'000);  // two tiles
  EXPECT_EQ(timings.first_token_us, 35'000);
  EXPECT_EQ(timings.per_token_us, 5'000);
  EXPECT_EQ(timings.total_us, 85'000);
  const std::string scrape = rig.metrics.Scrape();
  for (const char* line :
       {"reprise_generated_tokens_total{model=\"fake\"} 11",
        "reprise_time_per_output_token_seconds_sum{model=\"fake\"} 0.005\n",
        "reprise_inter_token_latency_seconds_count{model=\"fake\"} 10",
        "reprise_inter_token_latency_seconds_bucket{model=\"fake\","
        "le=\"0.006\"} 10",
        "reprise_requests_running{model=\"fake\"} 0",
        "reprise_requests_waiting{model=\"fake\"} 0"}) {
    EXPECT_THAT(scrape, testing::HasSubstr(line));
  }
}

}  // namespace
}  // namespace reprise
