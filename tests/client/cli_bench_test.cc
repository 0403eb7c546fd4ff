// `reprise bench` against a server in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "tests/client/cli_fixture.h"
#include "tests/client/fake_server.h"
#include "tests/support/json.h"
#include "tests/support/process.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

FakeAnswer TwoTokens() {
  FakeAnswer answer = AnswerOf({"a", "b"});
  for (v1::GenerateResponse& message : answer.messages) {
    if (message.has_delta()) message.mutable_delta()->add_token_ids(7);
  }
  return answer;
}

FakeAnswer EndlessTokens() {
  FakeAnswer answer = TwoTokens();
  answer.messages.pop_back();  // Finished
  answer.endless = true;
  return answer;
}

TEST_F(CliTest, BenchStreamsUntilItsTimeIsOver) {
  server_.inference.SetAnswer(EndlessTokens());
  const Outcome outcome =
      Run({"bench", "--streams=3", "--seconds=1", "--prompt-tokens=5",
           "--server-pid=" + std::to_string(getpid())});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* text :
       {"streams:         3 for 1.", "tokens/s:", "between tokens:  median ",
        "first token:", "server:", "this program:"}) {
    EXPECT_THAT(outcome.out, HasSubstr(text));
  }
  EXPECT_THAT(outcome.out, Not(HasSubstr("long prompts")));
  EXPECT_EQ(server_.inference.generate_calls(), 3);
  EXPECT_EQ(server_.inference.cancelled_calls(), 3);
  const v1::GenerateRequest request = server_.inference.last_request();
  EXPECT_EQ(request.token_ids().ids_size(), 5);
  EXPECT_EQ(request.stopping().max_new_tokens(), 100u);  // the server's limit
  EXPECT_TRUE(request.stopping().ignore_eos());
  EXPECT_EQ(request.start_case(), v1::GenerateRequest::START_NOT_SET);
}

// A stream that has ended is followed by the next, and so is a long prompt.
TEST_F(CliTest, BenchTellsProgramsWhatItCounted) {
  server_.inference.SetAnswer(TwoTokens());
  const Outcome outcome =
      Run({"bench", "--streams=2", "--seconds=1", "--max-tokens=2",
           "--prompts=1", "--long-prompt-tokens=100", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto json = JsonOf(outcome.out);
  const auto number = [&](const char* name) {
    return json.at(name).get<double>();
  };
  const auto count = [&](const char* name) {
    return json.at(name).at("count").get<double>();
  };
  EXPECT_EQ(number("streams"), 2);
  EXPECT_GE(number("seconds"), 1);
  // Of two tokens the second comes after a gap; the first measured one may be
  // either.
  EXPECT_GT(count("between_tokens"), 10);
  EXPECT_NEAR(number("tokens_per_s") * number("seconds"),
              2 * count("between_tokens"), 4);
  EXPECT_GT(count("first_token"), 10);
  EXPECT_GT(number("long_prompts"), 1);
  EXPECT_EQ(count("long_first_token"), number("long_prompts"));
  EXPECT_NEAR(number("long_prompt_tokens_per_s") * number("seconds"),
              100 * number("long_prompts"), 0.1);
  EXPECT_GT(server_.inference.generate_calls(), 20);
}

TEST_F(CliTest, BenchEndsWithWhatIsWrong) {
  server_.inference.SetAnswer(
      ErrorAnswer(grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full"));
  const Outcome outcome = Run({"bench", "--streams=4"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "reprise: RESOURCE_EXHAUSTED: the queue is full\n");
  EXPECT_THAT(Run({"bench", "--streams=8", "--prompts=1"}).err,
              HasSubstr("--streams and --prompts: 9 at once, this server runs "
                        "8\n"));
  EXPECT_THAT(Run({"bench", "--streams=1", "--prompt-tokens=1001"}).err,
              HasSubstr(": 1001, this server takes 1000\n"));
  EXPECT_EQ(Run({"bench", "--streams=0"}).exit_code, 2);
  server_.inference.SetAnswer(AnswerOf({}));
  EXPECT_THAT(Run({"bench", "--streams=1"}).err,
              HasSubstr("the server answered without a token"));
  server_.inference.SetAnswer(EndlessTokens());
  EXPECT_THAT(Run({"bench", "--streams=1", "--server-pid=999999999"}).err,
              HasSubstr("--server-pid: no process 999999999 on this machine"));
}

}  // namespace
}  // namespace reprise
