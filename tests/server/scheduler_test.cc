// Completions are what a plain loop gives, whatever runs beside them and
// however they were cut.
#include "server/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/parallel.h"
#include "tests/support/reference_completion.h"
#include "tests/support/scheduler_rig.h"
#include "tests/support/teams.h"

namespace reprise {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<int32_t> RandomTokens(std::mt19937& random, size_t count) {
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(2 + random() % 30);
  }
  return tokens;
}

TurnRequest RandomRequest(std::mt19937& random) {
  TurnRequest request =
      MakeTurn("", RandomTokens(random, 1 + random() % 150),
               /*max_new_tokens=*/1 + static_cast<int64_t>(random() % 30),
               /*seed=*/random());
  request.sampling.temperature = static_cast<float>(random() % 3) / 2;
  if (random() % 2) request.sampling.repetition_penalty = 1.5;
  if (random() % 2) request.sampling.penalty_decay = 0.9f;
  if (random() % 2) request.sampling.penalty_last_n = random() % 20;
  if (random() % 2) request.eos_tokens = {FakeTokenizer::kEos};
  if (random() % 2) request.min_new_tokens = 3;
  return request;
}

std::vector<int32_t> Expected(const TurnRequest& request) {
  ReferenceSession session;
  return ReferenceTurn(request, session);
}

TEST(SchedulerTest, ACompletionIsThatOfAPlainLoop) {
  std::mt19937 random(1);
  SchedulerRig rig;
  for (int i = 0; i < 50; ++i) {
    const TurnRequest request = RandomRequest(random);
    Answer answer = rig.Run(request);
    EXPECT_EQ(answer.status, absl::OkStatus());
    EXPECT_EQ(answer.ids[0], Expected(request));
    EXPECT_EQ(answer.text(), rig.TextOf(answer.ids[0]));
  }
}

TEST(SchedulerTest, ABatchWithRandomArrivalsChangesNothing) {
  std::mt19937 random(2);
  SchedulerRig rig;
  std::vector<TurnRequest> requests;
  std::vector<std::shared_ptr<TokenStream>> streams;
  while (streams.size() < 32) {
    requests.push_back(RandomRequest(random));
    streams.push_back(rig.Submit(requests.back()));
    while (random() % 3 == 0) rig.Round();
  }
  rig.RunUntilIdle();
  for (size_t i = 0; i < streams.size(); ++i) {
    Answer answer;
    answer.Read(*streams[i]);
    EXPECT_EQ(answer.ids[0], Expected(requests[i])) << i;
  }
}

TEST(SchedulerTest, ThePrefillBudgetChangesNothing) {
  std::mt19937 random(3);
  for (size_t tokens : {1, 2, 63, 64, 65, 66, 128, 129, 200, 321}) {
    const std::vector<int32_t> prompt = RandomTokens(random, tokens);
    std::vector<std::vector<int32_t>> outputs;
    for (int64_t budget : {1, 64, 100, 128, 448}) {
      SchedulerRig::Options options;
      options.engine.cuts_matter = true;
      options.scheduler.prefill_rows = budget;
      SchedulerRig rig(std::move(options));
      // Others to share the budget with.
      auto before = rig.Submit(MakeTurn("", RandomTokens(random, 100)));
      auto stream = rig.Submit(MakeTurn("", prompt));
      auto after = rig.Submit(MakeTurn("", RandomTokens(random, 300)));
      rig.RunUntilIdle();
      Answer answer;
      answer.Read(*stream);
      outputs.push_back(answer.ids[0]);
      EXPECT_THAT(outputs.back(), SizeIs(16));
      EXPECT_EQ(outputs.back(), outputs.front()) << tokens << " " << budget;
    }
  }
}

TEST(SchedulerTest, ALongPromptDoesNotStallTheOthers) {
  SchedulerRig::Options options;
  options.scheduler.prefill_rows = 64;
  SchedulerRig rig(std::move(options));
  TurnRequest talk = MakeTurn("", {5}, /*max_new_tokens=*/100);
  talk.sampling.logit_bias = {{5, 100.0f}};  // no unfinished characters
  auto talker = rig.Submit(talk);
  rig.Round();
  rig.Round();
  auto reader = rig.Submit(MakeTurn("", std::vector<int32_t>(2000, 4)));
  rig.Round();
  Answer talked;
  talked.Read(*talker);
  for (int i = 0; i < 30; ++i) {
    const size_t before = talked.ids[0].size();
    rig.Round();
    talked.Read(*talker);
    EXPECT_EQ(talked.ids[0].size(), before + 1);
  }
  rig.RunUntilIdle();
}

TEST(SchedulerTest, ATurnThatTheContextCannotHoldIsRefusedByFieldAndLimit) {
  SchedulerRig::Options options;
  options.engine.max_context = 20;
  SchedulerRig rig(std::move(options));
  const std::vector<int32_t> ten(10, 5);
  EXPECT_THAT(rig.Run(MakeTurn("full", ten, 10)).ids[0], SizeIs(10));
  // The pending token counts: it will be fed first.
  EXPECT_EQ(rig.Look("full").record.position, 19);

  TurnRequest more = MakeTurn("full", {5, 6}, 1);
  more.input = "token_ids.ids";
  const absl::Status input = *rig.Run(std::move(more)).status;
  EXPECT_EQ(input.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(input.message(),
            "token_ids.ids: 2 tokens after 20 of the conversation are more "
            "than a session of this model can hold, 20 (--max-context of the "
            "server)");
  EXPECT_EQ(rig.Look("full").record.position, 19) << "as it was";

  const absl::Status asked = *rig.Run(MakeTurn("", ten, 11)).status;
  EXPECT_EQ(asked.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(asked.message(),
            "stopping.max_new_tokens: 11 tokens after 10 of the conversation "
            "are more than a session of this model can hold, 20 (--max-context "
            "of the server)");
}

// Only somebody who has the key of seals can make such a session.
TEST(SchedulerTest, ATurnBeyondTheLastPositionIsRefusedBeforeItBegins) {
  SchedulerRig rig;
  AcquireOptions options;
  options.create = true;
  auto lease = rig.sessions->Acquire({"", "far"}, options);
  ASSERT_TRUE(lease.ok()) << lease.status();
  lease->MarkChanged();
  lease->record().position = kMaxPosition - 2;
  lease->record().pending_token = 5;
  ASSERT_TRUE(rig.sessions->Commit(*std::move(lease), {}).ok());
  const absl::Status status = *rig.Run(MakeTurn("far", {6}, 1)).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "stopping.max_new_tokens: 1 tokens after 281474976710656 of the "
            "conversation are more than a session of this model can hold, "
            "281474976710656");
}

TEST(SchedulerTest, ASuspendedSessionGoesOnAsIfNothingHadBeen) {
  std::mt19937 random(4);
  for (int round = 0; round < 30; ++round) {
    const std::vector<int32_t> prompt = RandomTokens(random, 1 + round * 5);
    const uint64_t seed = random();
    const int64_t first = 1 + static_cast<int64_t>(random() % 20);
    SchedulerRig rig;
    Answer whole = rig.Run(MakeTurn("whole", prompt, 30, seed));
    Answer part = rig.Run(MakeTurn("parts", prompt, first, seed));
    EXPECT_TRUE(rig.sessions->Suspend({"", "parts"}).ok());
    rig.Run(MakeTurn("other", prompt, 3));
    Answer rest = rig.Run(MakeTurn("parts", {}, 30 - first, seed));
    EXPECT_EQ(rest.started->cached_tokens,
              static_cast<int64_t>(prompt.size()) + first - 1);
    EXPECT_EQ(rest.started->revision, 1u);
    EXPECT_EQ(rest.finished.at(0).revision, 2u);
    std::vector<int32_t> ids = part.ids[0];
    ids.insert(ids.end(), rest.ids[0].begin(), rest.ids[0].end());
    EXPECT_EQ(ids, whole.ids[0]);
    EXPECT_EQ(part.text() + rest.text(), whole.text());
    EXPECT_EQ(rig.Look("parts").tokens, rig.Look("whole").tokens);
  }
}

TEST(SchedulerTest, AResumeComputesNothingButThePendingToken) {
  SchedulerRig rig;
  rig.Run(MakeTurn("s", std::vector<int32_t>(500, 7), 10));
  const int64_t rows = rig.engine.total_rows;
  rig.Run(MakeTurn("s", {}, /*max_new_tokens=*/1));
  EXPECT_EQ(rig.engine.total_rows, rows + 1);
}

TEST(SchedulerTest, AppendThenGenerateIsGenerateWithBoth) {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    const auto a = RandomTokens(random, 1 + random() % 100);
    const auto b = RandomTokens(random, 1 + random() % 100);
    std::vector<int32_t> both = a;
    both.insert(both.end(), b.begin(), b.end());
    SchedulerRig rig;
    Answer append = rig.Run(MakeTurn("s", a, /*max_new_tokens=*/0));
    EXPECT_EQ(append.reason(), FinishReason::kLength);
    EXPECT_EQ(append.finished.at(0).revision, 1u);
    EXPECT_EQ(rig.Look("s").tokens, a);
    Answer second = rig.Run(MakeTurn("s", b));
    Answer once = rig.Run(MakeTurn("t", both));
    EXPECT_EQ(second.ids[0], once.ids[0]);
    EXPECT_EQ(rig.Look("s").tokens, rig.Look("t").tokens);
  }
}

TEST(SchedulerTest, CompletionsOfOnePromptAreSoloRunsWithSeedsInARow) {
  std::mt19937 random(6);
  SchedulerRig rig;
  TurnRequest request = MakeTurn("", RandomTokens(random, 90), 20, 100);
  request.n = 5;
  Answer answer = rig.Run(request);
  EXPECT_EQ(answer.status, absl::OkStatus());
  ASSERT_THAT(answer.finished, SizeIs(5));
  for (int32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(answer.ids[i],
              Expected(MakeTurn("", request.prompt, 20, 100 + i)));
  }
  EXPECT_EQ(answer.deltas.back().usage.completion_tokens, 100);
  // The prompt was read once.
  EXPECT_EQ(rig.engine.total_rows, 89 + 5 * 20);
}

TEST(SchedulerTest, CompletionsOfASessionThatKeepNothing) {
  SchedulerRig rig;
  rig.Run(MakeTurn("s", {4, 5, 6}, 5));
  const auto before = rig.Look("s");
  TurnRequest request = MakeTurn("s", {7, 8}, 6);
  request.n = 3;
  request.commit = false;
  Answer answer = rig.Run(request);
  ASSERT_THAT(answer.finished, SizeIs(3));
  EXPECT_EQ(answer.finished.at(0).revision, std::nullopt);
  EXPECT_EQ(rig.Look("s").tokens, before.tokens);
  EXPECT_EQ(rig.Look("s").record.revision, 1u);
  // The first is what the session itself would have said.
  request.n = 1;
  request.commit = true;
  EXPECT_EQ(rig.Run(request).ids[0], answer.ids[0]);
}

TEST(SchedulerTest, NothingToDecodeIsRefusedAndTakesNoRoom) {
  SchedulerRig::Options options;
  options.scheduler.max_running = 1;
  options.sessions.num_slots = 1;
  SchedulerRig rig(std::move(options));
  Answer answer = rig.Run(MakeTurn("s", {}));
  ASSERT_TRUE(answer.status.has_value());
  EXPECT_TRUE(absl::IsInvalidArgument(*answer.status));
  EXPECT_FALSE(answer.started.has_value());
  EXPECT_EQ(rig.Run(MakeTurn("s", {4})).status, absl::OkStatus());
}

TEST(SchedulerTest, AnEmptyAppendMakesNoRevision) {
  SchedulerRig rig;
  rig.Run(MakeTurn("s", {4, 5}, 0));
  Answer answer = rig.Run(MakeTurn("s", {}, 0));
  EXPECT_EQ(answer.status, absl::OkStatus());
  EXPECT_EQ(answer.finished.at(0).revision, std::nullopt);
  EXPECT_EQ(rig.Look("s").record.revision, 1u);
}

TEST(SchedulerTest, AcquireErrorsAreTheStatus) {
  SchedulerRig rig;
  TurnRequest request = MakeTurn("missing", {4});
  request.acquire.create = false;
  EXPECT_TRUE(absl::IsNotFound(*rig.Run(request).status));

  rig.Run(MakeTurn("s", {4}));
  request = MakeTurn("s", {4});
  request.acquire.expected_revision = 7;
  EXPECT_TRUE(absl::IsAborted(*rig.Run(request).status));
}

TEST(SchedulerTest, OfTwoTurnsAtOnceTheSecondIsAborted) {
  SchedulerRig rig;
  auto first = rig.Submit(MakeTurn("s", {4}));
  rig.Round();
  rig.Round();
  auto second = rig.Submit(MakeTurn("s", {5}));
  rig.RunUntilIdle();
  EXPECT_EQ(first->FinalStatus(), std::nullopt);  // events are left
  Answer answer;
  answer.Read(*second);
  EXPECT_TRUE(absl::IsAborted(*answer.status));
  EXPECT_THAT(rig.metrics.Scrape(),
              testing::HasSubstr("reprise_requests_rejected_total{"
                                 "reason=\"session_busy\"} 1"));
}

// With a vocabulary for which the team is woken.
TEST(SchedulerTest, SamplingOnSeveralThreadsChangesNoToken) {
  constexpr int64_t kVocabSize = 40000;
  std::vector<std::string> pieces;
  for (int64_t id = 0; id < kVocabSize; ++id) {
    pieces.push_back("t" + std::to_string(id));
  }
  SetNumThreads(TeamOf(3));
  SchedulerRig::Options options;
  options.engine.vocab_size = kVocabSize;
  options.engine.max_rows = 128;
  options.tokenizer = FakeTokenizer(std::move(pieces));
  options.scheduler.max_running = 8;
  options.sessions.num_slots = 8;
  SchedulerRig rig(std::move(options));
  std::mt19937 random(5);
  std::vector<TurnRequest> requests;
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int i = 0; i < 7; ++i) {
    requests.push_back(RandomRequest(random));
    requests.back().max_new_tokens = 5 + i;
    streams.push_back(rig.Submit(requests.back()));
  }
  rig.RunUntilIdle();
  SetNumThreads(1);
  for (size_t i = 0; i < requests.size(); ++i) {
    Answer answer;
    answer.Read(*streams[i]);
    ReferenceSession session;
    EXPECT_EQ(answer.ids[0], ReferenceTurn(requests[i], session, kVocabSize));
  }
}

}  // namespace
}  // namespace reprise
