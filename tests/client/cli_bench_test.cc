// `reprise bench` against a server in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/client/cli_fixture.h"
#include "tests/client/fake_server.h"
#include "tests/client/process.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Tokens without an end.
FakeAnswer Endless() {
  FakeAnswer answer;
  answer.messages = {StartedMessage(""), DeltaMessage("a", 1)};
  answer.messages.back().mutable_delta()->add_token_ids(7);
  answer.endless = true;
  return answer;
}

TEST_F(CliTest, BenchStreamsUntilItsTimeIsOver) {
  server_.inference.SetAnswer(Endless());
  const Outcome outcome =
      Run({"bench", "--streams=3", "--seconds=1", "--prompt-tokens=5",
           "--max-tokens=9", "--server-pid=" + std::to_string(getpid())});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* name : {"streams:         3 for 1.", "tokens/s:",
                           "between tokens:  median ", "first token:",
                           "server:", "this program:"}) {
    EXPECT_THAT(outcome.out, HasSubstr(name));
  }
  EXPECT_THAT(outcome.out, Not(HasSubstr("long prompts")));
  EXPECT_EQ(server_.inference.generate_calls(), 3);
  const v1::GenerateRequest request = server_.inference.last_request();
  EXPECT_EQ(request.token_ids().ids_size(), 5);
  EXPECT_EQ(request.stopping().max_new_tokens(), 9u);
  EXPECT_TRUE(request.stopping().ignore_eos());
  EXPECT_EQ(request.start_case(), v1::GenerateRequest::START_NOT_SET);
}

// A long prompt is one whose only answer has come; here it never ends.
TEST_F(CliTest, BenchTellsProgramsTheSame) {
  server_.inference.SetAnswer(Endless());
  const Outcome outcome =
      Run({"bench", "--streams=1", "--seconds=1", "--prompts=1",
           "--long-prompt-tokens=100", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json.at("streams"), 1);
  EXPECT_GE(json.at("seconds"), 1);
  // Every message but the first ones is between two that were measured.
  const double tokens =
      json.at("tokens_per_s").get<double>() * json.at("seconds").get<double>();
  EXPECT_NEAR(tokens, json.at("between_tokens").at("count").get<double>(), 2);
  EXPECT_GT(json.at("between_tokens").at("median_ms"), 0);
  EXPECT_GE(json.at("between_tokens").at("p99_ms"),
            json.at("between_tokens").at("median_ms"));
  EXPECT_EQ(json.at("first_token").at("count"), 1);
  EXPECT_EQ(json.at("long_prompts"), 0);
}

TEST_F(CliTest, BenchEndsWithWhatTheServerSays) {
  server_.inference.SetAnswer(
      ErrorAnswer(grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full"));
  const Outcome outcome = Run({"bench", "--streams=4"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "reprise: RESOURCE_EXHAUSTED: the queue is full\n");
  EXPECT_THAT(Run({"bench", "--server-pid=999999999"}).err,
              HasSubstr("--server-pid: no process 999999999 on this machine"));
  EXPECT_EQ(Run({"bench", "--streams=0"}).exit_code, 2);
}

}  // namespace
}  // namespace reprise
