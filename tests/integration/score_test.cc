// Score over real gRPC, on the fake engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/raw_rpc.h"
#include "tests/support/scrape.h"
#include "tests/support/test_server.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr auto kRefused = grpc::StatusCode::INVALID_ARGUMENT;

struct Scored {
  grpc::Status status;
  std::vector<v1::ScoreResponse> messages;
  std::vector<v1::TokenLogprobs> tokens;
};

class ScoreTest : public ::testing::Test {
 protected:
  Scored Score(const v1::ScoreRequest& request) {
    grpc::ClientContext context;
    Scored scored;
    auto reader = server_.inference().Score(&context, request);
    v1::ScoreResponse message;
    while (reader->Read(&message)) {
      for (const auto& token : message.tokens()) scored.tokens.push_back(token);
      scored.messages.push_back(message);
    }
    scored.status = reader->Finish();
    return scored;
  }
  static v1::ScoreRequest Text(const std::string& text) {
    v1::ScoreRequest request;
    request.set_text(text);
    return request;
  }
  double Metric(const std::string& name) {
    return MetricValue(server_.metrics().Scrape(), name);
  }
  void ExpectRefused(const v1::ScoreRequest& request,
                     const std::string& message) {
    const Scored scored = Score(request);
    EXPECT_EQ(scored.status.error_code(), kRefused);
    EXPECT_THAT(scored.status.error_message(), HasSubstr(message));
    EXPECT_TRUE(scored.messages.empty());
  }

  TestServer server_;
};

TEST_F(ScoreTest, TotalsAreThoseOfTheTokens) {
  // abc, " ", ab, "\n", dab: 10 bytes, of which 7 are scored.
  v1::ScoreRequest request = Text("abc ab\ndab");
  request.set_logprobs(3);
  const Scored scored = Score(request);
  ASSERT_TRUE(scored.status.ok()) << scored.status.error_message();
  ASSERT_THAT(scored.tokens, SizeIs(4));
  EXPECT_EQ(scored.messages.front().totals().text_tokens(), 5u);
  double sum = 0;
  for (const v1::TokenLogprobs& token : scored.tokens) {
    sum += token.chosen().logprob();
    EXPECT_EQ(token.chosen().bytes(),
              server_.tokenizer().TokenBytes(token.chosen().token_id()));
    EXPECT_EQ(token.top_size(), 3);
  }
  const v1::ScoreResponse& last = scored.messages.back();
  EXPECT_EQ(last.totals().scored_tokens(), 4u);
  EXPECT_EQ(last.totals().scored_bytes(), 7u);
  EXPECT_DOUBLE_EQ(last.totals().logprob(), sum);
  EXPECT_DOUBLE_EQ(last.totals().perplexity(), std::exp(-sum / 4));
  EXPECT_TRUE(last.has_timings());
}

TEST_F(ScoreTest, ScoresAreThePromptLogprobsOfGenerate) {
  v1::GenerateRequest generate = TextRequest("abc ab\ndab", 1);
  generate.mutable_output()->set_prompt_logprobs(true);
  const Completion completion = Generate(server_.inference(), generate);
  const Scored scored = Score(Text("abc ab\ndab"));
  ASSERT_EQ(completion.started.prompt_logprobs_size(), 4);
  ASSERT_THAT(scored.tokens, SizeIs(4));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(completion.started.prompt_logprobs(i).SerializeAsString(),
              scored.tokens[static_cast<size_t>(i)].SerializeAsString());
  }
}

TEST_F(ScoreTest, ALongTextComesInSeveralMessagesWithRunningTotals) {
  v1::ScoreRequest request;
  for (int i = 0; i < 1999; ++i) request.mutable_token_ids()->add_ids(i % 31);
  request.set_logprobs(20);
  const Scored scored = Score(request);
  ASSERT_TRUE(scored.status.ok()) << scored.status.error_message();
  ASSERT_THAT(scored.tokens, SizeIs(1998));
  uint64_t tokens = 0;
  for (const v1::ScoreResponse& message : scored.messages) {
    EXPECT_LE(message.tokens_size(), 1024);
    tokens += static_cast<uint64_t>(message.tokens_size());
    EXPECT_EQ(message.totals().scored_tokens(), tokens);
    EXPECT_EQ(message.totals().text_tokens(), 1999u);
    EXPECT_EQ(message.totals().has_perplexity(), tokens > 0);
  }
  for (size_t i = 0; i < scored.tokens.size(); ++i) {
    EXPECT_EQ(scored.tokens[i].chosen().token_id(),
              static_cast<int32_t>((i + 1) % 31));
  }
}

TEST_F(ScoreTest, RefusesWhatCannotBeScoredByName) {
  ExpectRefused({}, "text: 0 tokens");
  ExpectRefused(Text(""), "text: 0 tokens");
  ExpectRefused(Text("a"), "text: 1 tokens are less than 2");
  ExpectRefused(Text("xyz"), "text: ");
  EXPECT_TRUE(Score(Text(std::string(4000, 'a'))).status.ok());  // of "aa"
  ExpectRefused(Text(std::string(4001, 'a')),
                "text: more tokens than the server takes, 2000");
  v1::ScoreRequest ids;
  ids.mutable_token_ids();
  ExpectRefused(ids, "token_ids.ids: 0 tokens");
  ids.mutable_token_ids()->add_ids(3);
  ids.mutable_token_ids()->add_ids(32);
  ExpectRefused(ids, "token_ids.ids[1]: 32");
  v1::ScoreRequest many = Text("abc ab");
  many.set_logprobs(21);
  ExpectRefused(many, "logprobs: 21 is not in [0, 20]");
  v1::ScoreRequest name = Text("abc ab");
  name.set_request_id(std::string(129, 'r'));
  ExpectRefused(name, "request_id: 129");
  // Special tokens are text unless they are allowed.
  ExpectRefused(Text("ab<eos>"), "text: ");
  v1::ScoreRequest special = Text("ab<eos>");
  special.set_allow_special_tokens(true);
  EXPECT_TRUE(Score(special).status.ok());
}

TEST_F(ScoreTest, TextThatIsNotUtf8IsRefused) {
  const RawAnswer answer = RawCall(
      server_.channel(), "/reprise.v1.Inference/Score", "\x0A\x02\x61\xFF");
  EXPECT_EQ(answer.status.error_code(), kRefused);
  EXPECT_THAT(answer.status.error_message(),
              HasSubstr("ScoreRequest.text: is not valid UTF-8"));
}

TEST_F(ScoreTest, ADeadlineAndACancelledCallEndTheWork) {
  v1::ScoreRequest request;
  for (int i = 0; i < 1999; ++i) request.mutable_token_ids()->add_ids(2);
  server_.gate().Limit(1);
  grpc::ClientContext cancelled;
  auto reader = server_.inference().Score(&cancelled, request);
  v1::ScoreResponse message;
  ASSERT_TRUE(reader->Read(&message));
  server_.gate().AwaitBlocked();
  cancelled.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  server_.gate().Open();
  ASSERT_TRUE(Eventually([&] { return server_.open_calls() == 0; }));

  server_.gate().Limit(0);
  grpc::ClientContext late;
  late.set_deadline(std::chrono::system_clock::now() +
                    std::chrono::milliseconds(200));
  reader = server_.inference().Score(&late, request);
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  server_.gate().Open();
  ASSERT_TRUE(Eventually([&] { return server_.open_calls() == 0; }));
  EXPECT_TRUE(Score(Text("abc ab")).status.ok());
}

TEST_F(ScoreTest, MetricsCountTheCallAndItsTokens) {
  ASSERT_TRUE(Score(Text("abc ab\ndab")).status.ok());
  ExpectRefused(Text("a"), "2");
  EXPECT_EQ(Metric("reprise_requests_total{finish_reason=\"none\","
                   "grpc_code=\"OK\",method=\"Score\"}"),
            1);
  EXPECT_EQ(Metric("reprise_requests_total{finish_reason=\"none\","
                   "grpc_code=\"InvalidArgument\",method=\"Score\"}"),
            1);
  EXPECT_EQ(Metric("reprise_request_duration_seconds_count{model=\"fake\","
                   "method=\"Score\",outcome=\"ok\"}"),
            1);
  EXPECT_EQ(Metric("reprise_prompt_tokens_total{model=\"fake\","
                   "source=\"computed\"}"),
            5);
  EXPECT_EQ(Metric("reprise_generated_tokens_total{model=\"fake\"}"), 0);
}

}  // namespace
}  // namespace reprise
