// Generate over real gRPC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "server/inference_service_response.h"
#include "tests/support/fake_clock.h"
#include "tests/support/raw_rpc.h"
#include "tests/support/scrape.h"
#include "tests/support/test_server.h"

namespace reprise {
namespace {

class GenerateTest : public ::testing::Test {
 protected:
  Completion Run(const v1::GenerateRequest& request) {
    return Generate(server_.inference(), request);
  }
  bool AllSlotsFree() {
    return server_.scheduler().idle() &&
           server_.manager().num_free_slots() == server_.manager().num_slots();
  }

  double Cancellations(const std::string& cause) {
    return MetricValue(server_.metrics().Scrape(),
                       "reprise_cancellations_total{cause=\"" + cause + "\"}");
  }

  TestServer server_;
};

// The tokenizer of the test has no piece for "<" but in "<eos>": as text, the
// name cannot be encoded.
TEST_F(GenerateTest, NamesOfSpecialTokensAreTextUnlessAllowed) {
  v1::GenerateRequest request = TextRequest("abc <eos>d", 2);
  EXPECT_EQ(Run(request).status.error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request.set_allow_special_tokens(false);
  EXPECT_EQ(Run(request).status.error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request.set_allow_special_tokens(true);
  const Completion c = Run(request);
  ASSERT_TRUE(c.status.ok()) << c.status.error_message();
  EXPECT_EQ(c.started.prompt_tokens(), 4u);  // "abc", " ", "<eos>", "d"
}

TEST_F(GenerateTest, StreamIsStartedThenDeltasThenFinished) {
  v1::GenerateRequest request = TextRequest("abc d", 20);
  request.set_request_id("r1");
  const Completion c = Run(request);
  ASSERT_TRUE(c.status.ok()) << c.status.error_message();
  ASSERT_GE(c.messages.size(), 3u);
  EXPECT_TRUE(c.messages.front().has_started());
  EXPECT_TRUE(c.messages.back().has_finished());
  for (size_t i = 1; i + 1 < c.messages.size(); ++i) {
    EXPECT_TRUE(c.messages[i].has_delta());
  }
  EXPECT_EQ(c.started.request_id(), "r1");
  EXPECT_EQ(c.started.prompt_tokens(), 3u);  // "abc", " ", "d"
  EXPECT_EQ(c.started.cached_tokens(), 0u);
  EXPECT_EQ(c.started.resumed_from(), v1::RESUME_SOURCE_NONE);
  EXPECT_EQ(c.started.model_fingerprint(), "0000000000000001");
  EXPECT_EQ(c.started.session_id(), "");
  EXPECT_EQ(c.token_ids.size(), 20u);
  ASSERT_EQ(c.finished.size(), 1u);
  EXPECT_EQ(c.finished[0].reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(c.finished[0].usage().prompt_tokens(), 3u);
  EXPECT_EQ(c.finished[0].usage().completion_tokens(), 20u);
  EXPECT_FALSE(c.finished[0].has_revision());
  EXPECT_GT(c.finished[0].timings().total_us(), 0u);
}

TEST_F(GenerateTest, UsageGrowsWithEveryDelta) {
  const Completion c = Run(TextRequest("abc", 50));
  uint32_t before = 0;
  size_t shown = 0;
  for (const v1::GenerateResponse& message : c.messages) {
    if (!message.has_delta()) continue;
    shown += message.delta().token_ids_size();
    EXPECT_GT(message.delta().usage().completion_tokens(), before);
    before = message.delta().usage().completion_tokens();
    EXPECT_EQ(before, shown);
  }
  EXPECT_EQ(before, 50u);
}

TEST_F(GenerateTest, StartedShowsTheParametersAsUsed) {
  const Completion c = Run(TextRequest("abc", 5));
  const v1::SamplingOptions& sampling = c.started.sampling();
  EXPECT_EQ(c.started.seed(), 7u);
  EXPECT_EQ(sampling.seed(), 7u);
  EXPECT_TRUE(sampling.has_temperature());
  EXPECT_EQ(sampling.temperature(), 1);
  EXPECT_EQ(sampling.top_p(), 1);
  EXPECT_FALSE(sampling.has_top_k());
  EXPECT_FALSE(sampling.has_penalty_last_n());
  EXPECT_EQ(c.started.stopping().max_new_tokens(), 5u);
  EXPECT_TRUE(c.started.stopping().ignore_eos());
}

TEST(StartedOfTest, IgnoreEosIsTheRequestsWhateverTheModelHas) {
  const ModelInfo model;  // without tokens that end a text
  v1::GenerateRequest request;
  EXPECT_FALSE(StartedOf(request, {}, model).stopping().ignore_eos());
  request.mutable_stopping()->set_ignore_eos(true);
  EXPECT_TRUE(StartedOf(request, {}, model).stopping().ignore_eos());
}

TEST_F(GenerateTest, NothingSetMeansTheDefaults) {
  v1::GenerateRequest request;
  request.set_text("abc");
  const Completion c = Run(request);
  ASSERT_TRUE(c.status.ok());
  EXPECT_EQ(c.started.stopping().max_new_tokens(), 16u);
  EXPECT_FALSE(c.started.stopping().ignore_eos());
  EXPECT_TRUE(c.token_ids.empty());
  ASSERT_EQ(c.finished.size(), 1u);
  EXPECT_TRUE(c.finished[0].has_timings());
}

TEST_F(GenerateTest, DrawnSeedIsReturnedAndRepeatsTheText) {
  v1::GenerateRequest request = TextRequest("abc", 40);
  request.mutable_sampling()->clear_seed();
  const Completion first = Run(request);
  const Completion other = Run(request);
  EXPECT_NE(first.started.seed(), other.started.seed());
  request.mutable_sampling()->set_seed(first.started.seed());
  EXPECT_EQ(Run(request).token_ids, first.token_ids);
}

TEST_F(GenerateTest, TokenIdsGiveWhatTheirTextGives) {
  v1::GenerateRequest ids = TextRequest("", 30);
  for (const int32_t id : {10, 6, 5}) ids.mutable_token_ids()->add_ids(id);
  EXPECT_EQ(Run(ids).token_ids, Run(TextRequest("abc d", 30)).token_ids);
}

TEST_F(GenerateTest, TextIsThatOfTheTokens) {
  const Completion c = Run(TextRequest("abc", 200));
  v1::DetokenizeRequest request;
  for (const int32_t id : c.token_ids) request.add_ids(id);
  v1::DetokenizeResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(
      server_.inference().Detokenize(&context, request, &response).ok());
  EXPECT_EQ(c.text, response.text());
}

TEST_F(GenerateTest, EachOfSeveralCompletionsIsFinished) {
  v1::GenerateRequest request = TextRequest("abc", 10);
  request.set_n(3);
  const Completion c = Run(request);
  ASSERT_TRUE(c.status.ok()) << c.status.error_message();
  ASSERT_EQ(c.finished.size(), 3u);
  std::vector<std::vector<int32_t>> ids(3);
  for (const v1::GenerateResponse& message : c.messages) {
    if (!message.has_delta()) continue;
    auto& to = ids[message.delta().index()];
    to.insert(to.end(), message.delta().token_ids().begin(),
              message.delta().token_ids().end());
  }
  // Seeds are 7, 8 and 9.
  for (uint32_t i = 0; i < 3; ++i) {
    v1::GenerateRequest alone = TextRequest("abc", 10);
    alone.mutable_sampling()->set_seed(7 + i);
    EXPECT_EQ(ids[i], Run(alone).token_ids) << i;
  }
}

TEST_F(GenerateTest, LogprobsComeWithBytesAndAlternatives) {
  v1::GenerateRequest request = TextRequest("abc d", 5);
  request.mutable_output()->set_logprobs(2);
  request.mutable_output()->set_prompt_logprobs(true);
  const Completion c = Run(request);
  EXPECT_EQ(c.started.prompt_logprobs_size(), 2);  // all but the first
  int count = 0;
  for (const v1::GenerateResponse& message : c.messages) {
    for (const v1::TokenLogprobs& token : message.delta().logprobs()) {
      EXPECT_EQ(token.chosen().token_id(), c.token_ids[count++]);
      EXPECT_EQ(token.chosen().bytes(),
                server_.tokenizer().TokenBytes(token.chosen().token_id()));
      EXPECT_LE(token.chosen().logprob(), 0);
      EXPECT_EQ(token.top_size(), 2);
    }
  }
  EXPECT_EQ(count, 5);
}

TEST_F(GenerateTest, StopTokenIsNamed) {
  const Completion free = Run(TextRequest("abc", 50));
  v1::GenerateRequest request = TextRequest("abc", 50);
  request.mutable_stopping()->add_stop_token_ids(free.token_ids[10]);
  const Completion c = Run(request);
  ASSERT_EQ(c.finished.size(), 1u);
  EXPECT_EQ(c.finished[0].reason(), v1::FINISH_REASON_STOP_TOKEN);
  EXPECT_EQ(c.finished[0].matched_token(), free.token_ids[10]);
}

TEST_F(GenerateTest, StopStringIsNamedAndNotShown) {
  const Completion free = Run(TextRequest("abc", 50));
  // Three letters from the middle; the pieces of longer characters stay out.
  const size_t at = free.text.find_first_of("abcde", free.text.size() / 2);
  const std::string stop = free.text.substr(
      at, std::min<size_t>(3, free.text.find_first_not_of("abcde", at) - at));
  v1::GenerateRequest request = TextRequest("abc", 50);
  request.mutable_stopping()->add_stop(stop);
  const Completion c = Run(request);
  ASSERT_EQ(c.finished.size(), 1u) << c.status.error_message();
  EXPECT_EQ(c.finished[0].reason(), v1::FINISH_REASON_STOP_STRING);
  EXPECT_EQ(c.finished[0].matched_stop(), stop);
  EXPECT_EQ(c.text, free.text.substr(0, free.text.find(stop)));
}

TEST(TimeLimitTest, EndsWithAllThatWasShown) {
  FakeClock clock;
  TestServer server(TestServer::SmallOptions(), clock);
  server.gate().Limit(3);
  v1::GenerateRequest request = TextRequest("abc", 2000);
  request.mutable_stopping()->set_time_limit_ms(20);
  grpc::ClientContext context;
  auto reader = server.inference().Generate(&context, request);
  server.gate().AwaitBlocked();
  clock.AdvanceMs(20);
  server.gate().Open();
  Completion c;
  v1::GenerateResponse message;
  while (reader->Read(&message)) AddMessage(message, c);
  EXPECT_TRUE(reader->Finish().ok());
  ASSERT_EQ(c.finished.size(), 1u);
  EXPECT_EQ(c.finished[0].reason(), v1::FINISH_REASON_TIME_LIMIT);
  EXPECT_EQ(c.finished[0].usage().completion_tokens(), 4u);
  EXPECT_EQ(c.token_ids.size(), 4u);
}

TEST_F(GenerateTest, TimingsAreLeftOutIfNotWanted) {
  v1::GenerateRequest request = TextRequest("abc", 3);
  request.mutable_output()->set_timings(false);
  EXPECT_FALSE(Run(request).finished.at(0).has_timings());
}

// ---- Ends that come early ---------------------------------------------------

TEST_F(GenerateTest, CancelInMidStreamFreesTheSlot) {
  server_.gate().Limit(5);
  grpc::ClientContext context;
  auto reader =
      server_.inference().Generate(&context, TextRequest("abc", 2000));
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_TRUE(message.has_delta());
  server_.gate().AwaitBlocked();
  EXPECT_FALSE(AllSlotsFree());
  context.TryCancel();
  EXPECT_TRUE(Eventually([&] {
    server_.gate().Limit(1);  // the cancel is seen after a step or two
    return AllSlotsFree();
  }));
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(Cancellations("client"), 1);
}

TEST_F(GenerateTest, DeadlineOfAMillisecondEndsTheCallAndTheWork) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(1));
  const Completion c =
      Generate(server_.inference(), TextRequest("abc", 2000), &context);
  if (!c.status.ok()) {
    EXPECT_EQ(c.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  EXPECT_TRUE(Eventually([&] { return AllSlotsFree(); }));
}

TEST_F(GenerateTest, PassedDeadlineIsTheCause) {
  // On a busy machine a short deadline may pass before the server has seen the
  // call; then a longer one is tried.
  int calls = 0;
  for (int ms = 50; ms <= 10'000 && Cancellations("deadline") < 1; ms *= 5) {
    ++calls;
    server_.gate().Limit(2);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::milliseconds(ms));
    const Completion c =
        Generate(server_.inference(), TextRequest("abc", 2000), &context);
    EXPECT_EQ(c.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    EXPECT_TRUE(Eventually([&] {
      server_.gate().Limit(1);
      return AllSlotsFree() && server_.open_calls() == 0;
    }));
  }
  // Counted once for each call that was seen, maybe after the last look.
  EXPECT_GE(Cancellations("deadline"), 1);
  EXPECT_LE(Cancellations("deadline"), calls);
}

TEST_F(GenerateTest, ClosedConnectionFreesTheSlotAndLeavesOthersAlone) {
  const Completion alone = Run(TextRequest("abc", 2000));
  Completion beside;
  std::thread other([&] { beside = Run(TextRequest("abc", 2000)); });
  {
    auto channel = server_.NewChannel();
    auto stub = v1::Inference::NewStub(channel);
    grpc::ClientContext context;
    auto reader = stub->Generate(&context, TextRequest("bcd", 2000));
    v1::GenerateResponse message;
    ASSERT_TRUE(reader->Read(&message));
    context.TryCancel();
    while (reader->Read(&message)) {
    }
    (void)reader->Finish();
  }
  other.join();
  EXPECT_TRUE(beside.status.ok());
  EXPECT_EQ(beside.token_ids, alone.token_ids);
  EXPECT_TRUE(Eventually([&] { return AllSlotsFree(); }));
}

TEST_F(GenerateTest, CancelBeforeTheStartIsHarmless) {
  for (int i = 0; i < 50; ++i) {
    grpc::ClientContext context;
    auto reader =
        server_.inference().Generate(&context, TextRequest("abc", 20));
    context.TryCancel();
    v1::GenerateResponse message;
    while (reader->Read(&message)) {
    }
    (void)reader->Finish();
  }
  EXPECT_TRUE(Eventually([&] { return AllSlotsFree(); }));
  EXPECT_TRUE(Run(TextRequest("abc", 5)).status.ok());
}

TEST_F(GenerateTest, ClientThatNeverClosesItsHalfIsServed) {
  grpc::GenericStub stub(server_.channel());
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  auto call =
      stub.PrepareCall(&context, "/reprise.v1.Inference/Generate", &queue);
  call->StartCall(nullptr);
  ASSERT_TRUE(wait());
  call->Write(ToByteBuffer(TextRequest("abc", 5).SerializeAsString()), nullptr);
  ASSERT_TRUE(wait());
  grpc::ByteBuffer message;
  int messages = 0;
  for (call->Read(&message, nullptr); wait(); call->Read(&message, nullptr)) {
    ++messages;
    message.Clear();
  }
  EXPECT_GE(messages, 3);  // Started, a Delta, Finished
  grpc::Status status;
  call->Finish(&status, nullptr);
  wait();
  EXPECT_TRUE(status.ok()) << status.error_message();
  queue.Shutdown();
}

TEST_F(GenerateTest, SlowReaderGetsEverythingInTheEnd) {
  const Completion fast = Run(TextRequest("abc", 2000));
  grpc::ClientContext context;
  auto reader =
      server_.inference().Generate(&context, TextRequest("abc", 2000));
  // The whole work may be done, or paused at a full buffer, before the first
  // read: either way nothing is lost.
  const Completion meanwhile = Run(TextRequest("bcd", 500));
  EXPECT_TRUE(meanwhile.status.ok());
  Completion slow;
  v1::GenerateResponse message;
  while (reader->Read(&message)) AddMessage(message, slow);
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(slow.token_ids, fast.token_ids);
}

TEST_F(GenerateTest, ManyStreamsAtOnceAreEachWhatTheyAreAlone) {
  const std::vector<std::string> prompts = {"a", "b", "abc", "d a", "cc", "ea"};
  std::vector<Completion> alone;
  for (const std::string& prompt : prompts) {
    alone.push_back(Run(TextRequest(prompt, 150)));
  }
  std::vector<Completion> together(prompts.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < prompts.size(); ++i) {
    threads.emplace_back(
        [&, i] { together[i] = Run(TextRequest(prompts[i], 150)); });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_TRUE(together[i].status.ok());
    EXPECT_EQ(together[i].token_ids, alone[i].token_ids) << prompts[i];
  }
}

}  // namespace
}  // namespace reprise
