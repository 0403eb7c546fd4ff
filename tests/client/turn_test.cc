#include "client/turn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <sstream>
#include <string>

#include "tests/client/fake_server.h"
#include "tests/client/pipe.h"
#include "tests/support/json.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;

TEST(ToJsonLineTest, KeepsTheNamesOfTheProtoFile) {
  v1::GenerateResponse message;
  message.mutable_started()->set_prompt_tokens(3);
  message.mutable_started()->set_seed(18446744073709551615u);
  message.mutable_started()->set_resumed_from(v1::RESUME_SOURCE_STORE);
  EXPECT_EQ(ToJsonLine(message).value(),
            "{\"started\":{\"prompt_tokens\":3,\"resumed_from\":"
            "\"RESUME_SOURCE_STORE\",\"seed\":\"18446744073709551615\"}}\n");
}

TEST(ToJsonLineTest, ANewlineInTheTextDoesNotBreakTheLine) {
  const std::string line = ToJsonLine(DeltaMessage("a\nb", 1)).value();
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(JsonOf(line)["delta"]["text"], "a\nb");
}

class RunTurnTest : public ::testing::Test {
 protected:
  RunTurnTest()
      : terminal_({.out_fd = out_.write_fd(), .err_fd = err_.write_fd()}) {}
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    auto client = Client::Connect({.address = server_.address()});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  TurnResult Run(TurnFormat format) {
    return RunTurn(*client_, v1::GenerateRequest(), ResumeOptions(), format,
                   terminal_,
                   /*interrupts=*/nullptr);
  }

  FakeServer server_;
  std::unique_ptr<Client> client_;
  Pipe out_;
  Pipe err_;
  Terminal terminal_;
};

TEST_F(RunTurnTest, TextIsExactlyWhatTheModelWrote) {
  server_.inference.SetAnswer(AnswerOf({"a\x1b", "b"}, "s"));
  const TurnResult result = Run(TurnFormat::kText);
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(out_.Drain(),
            "a\x1b"
            "b");
  EXPECT_EQ(err_.Drain(), "");
  EXPECT_EQ(result.started->session_id(), "s");
  EXPECT_EQ(result.usage.completion_tokens(), 2u);
  EXPECT_EQ(result.finished.size(), 1u);
}

TEST_F(RunTurnTest, JsonIsALinePerMessage) {
  server_.inference.SetAnswer(AnswerOf({"a", "b"}));
  EXPECT_TRUE(Run(TurnFormat::kJson).status.ok());
  std::istringstream lines(out_.Drain());
  std::vector<std::string> kinds;
  for (std::string line; std::getline(lines, line);) {
    kinds.push_back(JsonOf(line).begin().key());
  }
  EXPECT_THAT(kinds,
              ::testing::ElementsAre("started", "delta", "delta", "finished"));
}

TEST_F(RunTurnTest, SeveralCompletionsComeOneAfterTheOther) {
  FakeAnswer answer;
  answer.messages = {DeltaMessage("a1", 1, 0), DeltaMessage("b1", 2, 1),
                     DeltaMessage("a2", 3, 0), DeltaMessage("b2", 4, 1)};
  server_.inference.SetAnswer(answer);
  Run(TurnFormat::kText);
  EXPECT_EQ(out_.Drain(), "a1a2\n\nb1b2");
}

TEST_F(RunTurnTest, KeepsTheUsageOfAStreamThatBroke) {
  FakeAnswer answer;
  answer.messages = {StartedMessage(""), DeltaMessage("a", 1)};
  answer.status = grpc::Status(grpc::StatusCode::INTERNAL, "broke");
  server_.inference.SetAnswer(answer);
  const TurnResult result = Run(TurnFormat::kText);
  EXPECT_EQ(result.status, absl::InternalError("broke"));
  EXPECT_EQ(result.usage.completion_tokens(), 1u);
  EXPECT_EQ(out_.Drain(), "a");
}

TEST_F(RunTurnTest, AReaderThatLeavesEndsTheCallQuietly) {
  FakeAnswer answer;
  answer.messages = {DeltaMessage("y\n", 1)};
  answer.endless = true;
  server_.inference.SetAnswer(answer);
  out_.CloseRead();
  const TurnResult result = Run(TurnFormat::kText);
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(terminal_.out_closed());
}

TurnResult ExampleResult() {
  TurnResult result;
  result.started.emplace();
  result.usage.set_completion_tokens(24);
  v1::Finished finished;
  finished.set_reason(v1::FINISH_REASON_LENGTH);
  finished.mutable_timings()->set_first_token_us(8'300);
  finished.mutable_timings()->set_per_token_us(3'200);
  result.finished = {finished};
  return result;
}

TEST(SummariseTurnTest, OfAStatelessTurn) {
  EXPECT_EQ(SummariseTurn(ExampleResult()),
            "24 tokens, first after 8.3 ms, 312 tokens/s; length limit");
}

TEST(SummariseTurnTest, SaysHowASessionWasResumed) {
  TurnResult result = ExampleResult();
  result.started->set_session_id("s");
  result.started->set_revision(1);
  result.started->set_resumed_from(v1::RESUME_SOURCE_STORE);
  result.started->set_resume_reason("suspended");
  result.started->set_seed(7);
  result.started->mutable_sampling()->set_temperature(1);
  result.usage.set_cached_tokens(1'040);
  result.finished[0].set_revision(2);
  EXPECT_THAT(
      SummariseTurn(result),
      HasSubstr("; length limit; session s at revision 2, resumed from the "
                "store (suspended), 1,040 tokens cached; seed 7"));
}

TEST(SummariseTurnTest, MeasuresByItselfWhatAnInterruptedTurnCannotTell) {
  TurnResult result = ExampleResult();
  result.finished.clear();
  result.interrupted = true;
  result.first_text_us = 1'000'000;
  result.total_us = 3'000'000;
  result.usage.set_completion_tokens(5);
  EXPECT_EQ(SummariseTurn(result),
            "5 tokens, first after 1.00 s, 2 tokens/s; interrupted");
}

TEST(SummariseTurnTest, SaysWhereAnInterruptLeftTheSession) {
  TurnResult result = ExampleResult();
  result.finished.clear();
  result.interrupted = true;
  result.started->set_session_id("s");
  result.started->set_revision(3);
  result.started->set_resumed_from(v1::RESUME_SOURCE_SLOT);
  EXPECT_THAT(SummariseTurn(result), HasSubstr("session s was at revision 3,"));
  result.left_at = 4;
  EXPECT_THAT(SummariseTurn(result),
              HasSubstr("session s kept as revision 4,"));
  result.left_at = 3;
  EXPECT_THAT(SummariseTurn(result),
              HasSubstr("session s stays at revision 3,"));
  result.rolls_back = true;
  EXPECT_THAT(SummariseTurn(result),
              HasSubstr("session s rolled back to revision 3,"));
  result.left_at = 0;  // somebody deleted it
  EXPECT_THAT(SummariseTurn(result), HasSubstr("session s is at revision 0,"));
}

TEST(SummariseTurnTest, NamesEveryReason) {
  TurnResult result = ExampleResult();
  v1::Finished& finished = result.finished[0];
  finished.set_reason(v1::FINISH_REASON_STOP_STRING);
  finished.set_matched_stop("\n");
  EXPECT_THAT(SummariseTurn(result), HasSubstr("stop string \"\\n\""));
  finished.set_reason(v1::FINISH_REASON_STOP_TOKEN);
  finished.set_matched_token(3);
  EXPECT_THAT(SummariseTurn(result), HasSubstr("stop token 3"));
  finished.set_reason(v1::FINISH_REASON_STOP);
  EXPECT_THAT(SummariseTurn(result), HasSubstr("end of text"));
  finished.set_reason(v1::FINISH_REASON_TIME_LIMIT);
  EXPECT_THAT(SummariseTurn(result), HasSubstr("time limit"));
}

}  // namespace
}  // namespace reprise
