// Turns that begin with a state of the prefix cache are those of a plain loop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "server/scheduler.h"
#include "tests/support/reference_completion.h"
#include "tests/support/scheduler_rig.h"

namespace reprise {
namespace {

using testing::HasSubstr;

SchedulerRig::Options WithCache() {
  SchedulerRig::Options options;
  options.scheduler.prefix_cache_bytes = 1 << 20;
  return options;
}

std::vector<int32_t> MakeTokens(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(2 + random() % 30);
  }
  return tokens;
}

std::vector<int32_t> Joined(std::vector<int32_t> a,
                            const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<int32_t> Expected(const TurnRequest& request) {
  ReferenceSession session;
  return ReferenceTurn(request, session);
}

double Metric(SchedulerRig& rig, const std::string& series) {
  const std::string text = "\n" + rig.metrics.Scrape();
  const size_t at = text.find("\n" + series + " ");
  EXPECT_NE(at, std::string::npos) << series;
  return at == std::string::npos
             ? -1
             : std::stod(text.substr(at + series.size() + 2));
}

TEST(SchedulerPrefixTest, AHitIsSaidAndChangesNoToken) {
  SchedulerRig rig(WithCache());
  TurnRequest request = MakeTurn("", MakeTokens(200, 1), 12, /*seed=*/3);
  request.sampling.repetition_penalty = 1.7f;
  request.sampling.penalty_decay = 0.9f;
  request.sampling.penalty_last_n = 150;
  const std::vector<int32_t> expected = Expected(request);

  Answer first = rig.Run(request);
  EXPECT_EQ(first.ids[0], expected);
  EXPECT_EQ(first.started->resumed_from, ResumeSource::kNone);
  EXPECT_EQ(first.started->cached_tokens, 0);
  EXPECT_EQ(first.started->resume_reason,
            "stateless request; prefix cache: no prompt began so lately");
  Answer second = rig.Run(request);
  EXPECT_EQ(second.ids[0], expected);
  EXPECT_EQ(second.text(), first.text());
  EXPECT_EQ(second.started->resumed_from, ResumeSource::kPrefix);
  EXPECT_EQ(second.started->prompt_tokens, 200);
  EXPECT_EQ(second.started->cached_tokens, 192);
  EXPECT_EQ(second.finished.at(0).usage.cached_tokens, 192);

  const std::string model = "{model=\"fake\"}";
  EXPECT_EQ(Metric(rig, "reprise_prefix_cache_queries_tokens_total" + model),
            400);
  EXPECT_EQ(Metric(rig, "reprise_prefix_cache_hit_tokens_total" + model), 192);
  EXPECT_EQ(Metric(rig,
                   "reprise_prefix_cache_misses_total{model=\"fake\",reason="
                   "\"unknown\"}"),
            1);
  EXPECT_EQ(Metric(rig,
                   "reprise_prompt_tokens_total{model=\"fake\",source="
                   "\"computed\"}"),
            200 + 8);
  EXPECT_EQ(Metric(rig,
                   "reprise_prompt_tokens_total{model=\"fake\",source="
                   "\"cached\"}"),
            192);
  EXPECT_GT(Metric(rig, "reprise_snapshot_store_bytes{tier=\"prefix\"}"), 0);
}

TEST(SchedulerPrefixTest, ItComputesOnlyWhatIsNew) {
  SchedulerRig rig(WithCache());
  rig.Run(MakeTurn("", MakeTokens(64 * 6 + 1, 1), 1));
  int64_t rows = 0;
  const auto watch = rig.engine.before_step;
  rig.engine.before_step = [&](std::span<const StepSegment> segments) {
    for (const StepSegment& segment : segments) {
      rows += static_cast<int64_t>(segment.tokens.size());
    }
    watch(segments);
  };
  rig.Run(MakeTurn("", MakeTokens(64 * 6 + 1, 1), 1));
  EXPECT_EQ(rows, 1);
}

// Prompts with a common beginning, at once and one after the other, with and
// without sessions, cut by any budget of rows.
TEST(SchedulerPrefixTest, RandomTurnsAreThoseOfAPlainLoop) {
  std::mt19937 random(5);
  for (const int64_t prefill_rows : {64, 192, 1024}) {
    SchedulerRig::Options options = WithCache();
    options.scheduler.prefill_rows = prefill_rows;
    SchedulerRig rig(options);
    int64_t hits = 0;
    int64_t sessions = 0;
    for (int round = 0; round < 40; ++round) {
      std::vector<TurnRequest> requests;
      std::vector<std::shared_ptr<TokenStream>> streams;
      for (uint32_t i = 0; i < 1 + random() % 3; ++i) {
        const std::vector<int32_t> prompt = Joined(
            MakeTokens(64 * (random() % 4) + random() % 64, random() % 2),
            MakeTokens(1 + random() % 200, 10 + random() % 3));
        const bool session = random() % 2 == 0;
        const std::string id =
            session ? "s" + std::to_string(sessions++) : std::string();
        requests.push_back(MakeTurn(id, prompt, 1 + random() % 8, random()));
        requests.back().sampling.repetition_penalty = 1.3f;
        streams.push_back(rig.Submit(requests.back()));
      }
      rig.RunUntilIdle();
      for (size_t i = 0; i < requests.size(); ++i) {
        Answer answer;
        answer.Read(*streams[i]);
        ASSERT_EQ(answer.status, absl::OkStatus());
        ASSERT_EQ(answer.ids[0], Expected(requests[i]));
        hits += answer.started->resumed_from == ResumeSource::kPrefix;
        if (!requests[i].session.has_value()) continue;
        const auto kept = rig.Look(requests[i].session->id);
        EXPECT_EQ(kept.tokens, Joined(requests[i].prompt, answer.ids[0]));
      }
    }
    EXPECT_GT(hits, 10) << prefill_rows;
  }
}

TEST(SchedulerPrefixTest, SeveralCompletionsBeginWithIt) {
  SchedulerRig rig(WithCache());
  TurnRequest request = MakeTurn("", MakeTokens(150, 1), 10, /*seed=*/4);
  rig.Run(request);
  request.n = 3;
  Answer answer = rig.Run(request);
  EXPECT_EQ(answer.started->resumed_from, ResumeSource::kPrefix);
  for (int32_t i = 0; i < 3; ++i) {
    TurnRequest alone = request;
    alone.n = 1;
    alone.sampling.seed = 4 + i;
    EXPECT_EQ(answer.ids[i], Expected(alone));
  }
}

TEST(SchedulerPrefixTest, AnAppendOfACachedPromptIsCommitted) {
  SchedulerRig rig(WithCache());
  for (const char* id : {"a", "b"}) {
    Answer answer = rig.Run(MakeTurn(id, MakeTokens(129, 1), 0));
    EXPECT_EQ(answer.finished.at(0).revision, 1u);
    EXPECT_EQ(rig.Look(id).tokens, MakeTokens(129, 1));
    EXPECT_EQ(answer.started->cached_tokens, id[0] == 'a' ? 0 : 128);
  }
}

TEST(SchedulerPrefixTest, ASessionThatHasTokensIsLeftAlone) {
  SchedulerRig rig(WithCache());
  rig.Run(MakeTurn("", MakeTokens(150, 1), 2));
  rig.Run(MakeTurn("s", MakeTokens(5, 2), 2));
  Answer answer = rig.Run(MakeTurn("s", MakeTokens(150, 1), 2));
  EXPECT_EQ(answer.started->resumed_from, ResumeSource::kSlot);
  EXPECT_EQ(answer.started->cached_tokens, 6);
}

TEST(SchedulerPrefixTest, TenantsDoNotShare) {
  SchedulerRig rig(WithCache());
  TurnRequest request = MakeTurn("", MakeTokens(150, 1), 2);
  request.tenant = "a";
  rig.Run(request);
  request.tenant = "b";
  EXPECT_EQ(rig.Run(request).started->cached_tokens, 0);
  EXPECT_EQ(rig.Run(request).started->cached_tokens, 128);
}

TEST(SchedulerPrefixTest, LogprobsOfThePromptNeedAllOfIt) {
  SchedulerRig rig(WithCache());
  TurnRequest request = MakeTurn("", MakeTokens(150, 1), 2);
  rig.Run(request);
  request.prompt_logprobs = PromptLogprobs::kWithStarted;
  Answer answer = rig.Run(request);
  EXPECT_EQ(answer.started->cached_tokens, 0);
  EXPECT_EQ(answer.started->prompt_logprobs.size(), 149u);
  EXPECT_THAT(answer.started->resume_reason,
              HasSubstr("log-probabilities of the prompt are computed"));
}

// That a session stands in its slot is no reason to give, and none to join to.
TEST(SchedulerPrefixTest, AMissIsTheOnlyReasonOfASessionInItsSlot) {
  SchedulerRig rig(WithCache());
  rig.Run(MakeTurn("s", MakeTokens(3, 1), 2));
  ASSERT_TRUE(rig.sessions->Rewind({"", "s"}, 0, std::nullopt).ok());
  const Answer answer = rig.Run(MakeTurn("s", MakeTokens(3, 1), 2));
  EXPECT_EQ(answer.started->resumed_from, ResumeSource::kSlot);
  EXPECT_EQ(answer.started->resume_reason,
            "prefix cache: the prompt is too short");
}

TEST(SchedulerPrefixTest, ACancelledPromptLeavesOnlyWholeStates) {
  for (int rounds = 0; rounds < 12; ++rounds) {
    SchedulerRig::Options options = WithCache();
    options.scheduler.prefill_rows = 64;
    SchedulerRig rig(options);
    const TurnRequest request = MakeTurn("", MakeTokens(300, 1), 5);
    auto stream = rig.Submit(request);
    for (int i = 0; i < rounds; ++i) rig.Round();
    stream->Cancel(CancelCause::kClient);
    rig.RunUntilIdle();
    Answer answer = rig.Run(request);
    EXPECT_EQ(answer.ids[0], Expected(request));
  }
}

TEST(SchedulerPrefixTest, WithoutACacheNothingIsSaidOfIt) {
  SchedulerRig rig;
  const TurnRequest request = MakeTurn("", MakeTokens(150, 1), 2);
  rig.Run(request);
  Answer answer = rig.Run(request);
  EXPECT_EQ(answer.started->cached_tokens, 0);
  EXPECT_EQ(answer.started->resume_reason, "stateless request");
}

}  // namespace
}  // namespace reprise
