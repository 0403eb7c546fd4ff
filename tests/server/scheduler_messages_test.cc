// Turns with messages: what they feed depends on what the session holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/scheduler.h"
#include "server/turn_queue.h"
#include "tests/support/scheduler_rig.h"

namespace reprise {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

constexpr int32_t kEnd = FakeTokenizer::kEos;
constexpr int32_t kAsk = FakeTokenizer::kUser;

TurnRequest MessagesTurn(const std::string& session) {
  TurnRequest request = MakeTurn(session, /*prompt=*/{}, /*max_new_tokens=*/1);
  request.messages =
      MessagePrompts{.begin = std::vector<int32_t>{2, 3},
                     .next = Continuation{
                         .ids = {kEnd, kAsk, 4, 5}, .end = kEnd, .closing = 1}};
  return request;
}

// The session's tokens but the one that the turn sampled.
std::vector<int32_t> Fed(SchedulerRig& rig, const std::string& session) {
  std::vector<int32_t> tokens = rig.Look(session).tokens;
  tokens.pop_back();
  return tokens;
}

TEST(SchedulerMessagesTest, ANewSessionBeginsTheConversation) {
  SchedulerRig rig;
  Answer answer = rig.Run(MessagesTurn("s"));
  EXPECT_EQ(answer.status, absl::OkStatus());
  EXPECT_EQ(answer.started->prompt_tokens, 2);
  EXPECT_EQ(answer.finished.at(0).usage.prompt_tokens, 2);
  EXPECT_THAT(Fed(rig, "s"), ElementsAre(2, 3));
}

TEST(SchedulerMessagesTest, ASessionWithoutTokensBeginsItToo) {
  SchedulerRig rig;
  ASSERT_TRUE(rig.sessions->CreateSession({"", "s"}, /*ttl_ms=*/0).ok());
  rig.Run(MessagesTurn("s"));
  EXPECT_THAT(Fed(rig, "s"), ElementsAre(2, 3));
}

TEST(SchedulerMessagesTest, ASessionWithTokensContinues) {
  SchedulerRig rig;
  rig.Run(MakeTurn("s", {6, 7}, /*max_new_tokens=*/0));
  Answer answer = rig.Run(MessagesTurn("s"));
  EXPECT_EQ(answer.status, absl::OkStatus());
  EXPECT_EQ(answer.started->prompt_tokens, 4);
  EXPECT_THAT(Fed(rig, "s"), ElementsAre(6, 7, kEnd, kAsk, 4, 5));
}

TEST(SchedulerMessagesTest, AnEndThatTheSessionHasIsNotFedAgain) {
  SchedulerRig rig;
  rig.Run(MakeTurn("s", {6, kEnd}, /*max_new_tokens=*/0));
  Answer answer = rig.Run(MessagesTurn("s"));
  EXPECT_EQ(answer.started->prompt_tokens, 3);
  EXPECT_THAT(Fed(rig, "s"), ElementsAre(6, kEnd, kAsk, 4, 5));
}

TEST(SchedulerMessagesTest, AStatelessTurnBeginsTheConversation) {
  SchedulerRig rig;
  Answer answer = rig.Run(MessagesTurn(""));
  EXPECT_EQ(answer.status, absl::OkStatus());
  EXPECT_EQ(answer.started->prompt_tokens, 2);
  Answer same = rig.Run(MakeTurn("", {2, 3}, /*max_new_tokens=*/1));
  EXPECT_THAT(answer.ids[0], ElementsAreArray(same.ids[0]));
}

TEST(SchedulerMessagesTest, CompletionsOfAContinuationAllHaveIt) {
  SchedulerRig rig;
  rig.Run(MakeTurn("s", {6, 7}, /*max_new_tokens=*/0));
  TurnRequest request = MessagesTurn("s");
  request.n = 2;
  request.commit = false;
  Answer answer = rig.Run(request);
  EXPECT_EQ(answer.status, absl::OkStatus());
  TurnRequest tokens = MakeTurn("s", {kEnd, kAsk, 4, 5}, /*max_new_tokens=*/1);
  tokens.n = 2;
  tokens.commit = false;
  Answer same = rig.Run(tokens);
  EXPECT_EQ(answer.ids, same.ids);
}

TEST(SchedulerMessagesTest, OnlyTheErrorOfWhatIsNeededCounts) {
  SchedulerRig rig;
  const absl::Status refused = absl::InvalidArgumentError("messages: refused");
  TurnRequest begin = MessagesTurn("s");
  begin.messages->begin = refused;
  TurnRequest next = MessagesTurn("s");
  next.messages->next = refused;

  EXPECT_EQ(rig.Run(begin).status, refused);
  EXPECT_EQ(rig.Run(next).status, absl::OkStatus());
  const SchedulerRig::Session before = rig.Look("s");
  Answer answer = rig.Run(next);
  EXPECT_EQ(answer.status, refused);
  EXPECT_FALSE(answer.started.has_value());
  EXPECT_EQ(rig.Look("s").tokens, before.tokens);
  EXPECT_EQ(rig.Run(begin).status, absl::OkStatus());
}

TEST(SchedulerMessagesTest, MessagesThatComeToNothingAreRefusedInANewSession) {
  SchedulerRig rig;
  TurnRequest empty = MessagesTurn("s");
  empty.messages->begin = std::vector<int32_t>();
  empty.messages->next = Continuation{};
  EXPECT_TRUE(absl::IsInvalidArgument(*rig.Run(empty).status));
  rig.Run(MakeTurn("s", {6, 7}, /*max_new_tokens=*/0));
  EXPECT_EQ(rig.Run(empty).status, absl::OkStatus());  // goes on
}

TEST(SchedulerMessagesTest, TheQueueCountsTheLongerPrompt) {
  auto stream = std::make_shared<TokenStream>(8);
  TurnQueue queue;
  queue.Push(std::make_unique<Turn>(MessagesTurn("s"), stream));
  EXPECT_EQ(queue.prompt_tokens(), 4);
  std::unique_ptr<Turn> turn = queue.Pop();
  EXPECT_EQ(queue.prompt_tokens(), 0);
  queue.PutBack(std::move(turn));
  EXPECT_EQ(queue.prompt_tokens(), 4);
}

}  // namespace
}  // namespace reprise
