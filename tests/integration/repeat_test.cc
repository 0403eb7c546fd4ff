// Requests with a request_id that come again, over real gRPC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "tests/integration/sessions_fixture.h"
#include "tests/support/scrape.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;

class RepeatTest : public SessionsTest {
 protected:
  static v1::GenerateRequest Request(const std::string& request_id,
                                     const std::string& text = "abc d") {
    v1::GenerateRequest request = SessionRequest("s", text, 20);
    request.set_request_id(request_id);
    return request;
  }

  Completion Send(const v1::GenerateRequest& request) {
    return Generate(server_.inference(), request);
  }

  double GeneratedTokens() {
    return MetricValue(server_.metrics().Scrape(),
                       "reprise_generated_tokens_total{model=\"fake\"}");
  }

  static void ExpectRepeated(const Completion& again, const Completion& first) {
    ASSERT_TRUE(again.status.ok()) << again.status.error_message();
    EXPECT_FALSE(first.started.repeated());
    EXPECT_TRUE(again.started.repeated());
    EXPECT_EQ(again.text, first.text);
    EXPECT_EQ(again.token_ids, first.token_ids);
    EXPECT_EQ(again.started.revision(), first.started.revision());
    EXPECT_EQ(again.started.prompt_tokens(), first.started.prompt_tokens());
    EXPECT_EQ(again.started.cached_tokens(), first.started.cached_tokens());
    EXPECT_EQ(again.started.seed(), first.started.seed());
    EXPECT_EQ(again.started.sampling().seed(), first.started.seed());
    ASSERT_EQ(again.finished.size(), 1u);
    const v1::Finished& end = again.finished[0];
    EXPECT_EQ(end.reason(), first.finished.at(0).reason());
    EXPECT_EQ(end.matched_stop(), first.finished[0].matched_stop());
    EXPECT_EQ(end.revision(), first.finished[0].revision());
    EXPECT_EQ(end.usage().SerializeAsString(),
              first.finished[0].usage().SerializeAsString());
  }
};

TEST_F(RepeatTest, TheSameRequestIsAnsweredAgainAndRunsOnce) {
  Turn("s", "cc", 5);
  v1::GenerateRequest request = Request("r");
  request.mutable_sampling()->clear_seed();  // drawn, and recorded
  const Completion first = Send(request);
  ASSERT_TRUE(first.status.ok());
  const double tokens = GeneratedTokens();
  ExpectRepeated(Send(request), first);
  Suspend("s");
  ExpectRepeated(Send(request), first);
  EXPECT_EQ(GeneratedTokens(), tokens);
  EXPECT_EQ(Get("s").revision(), 2u);
  // And the conversation goes on as if it had been sent once.
  const Completion next = Send(Request("r2", "c"));
  EXPECT_FALSE(next.started.repeated());
  EXPECT_EQ(next.started.revision(), 2u);
}

TEST_F(RepeatTest, TheExpectedRevisionOfTheFirstTimeDoesNotRefuseTheSecond) {
  Turn("s", "cc", 5);
  v1::GenerateRequest request = Request("r");
  request.set_expected_revision(1);
  const Completion first = Send(request);
  ExpectRepeated(Send(request), first);
  request.set_expected_revision(2);  // another request
  const Completion refused = Send(request);
  EXPECT_EQ(refused.status.error_code(), kInvalidArgument);
  EXPECT_THAT(refused.status.error_message(),
              HasSubstr("request_id: r made revision 2 of session s from "
                        "revision 1, expected_revision is 2"));
}

TEST_F(RepeatTest, TheSecondTimeMayExpectTheRevisionThatTheFirstToldOf) {
  Turn("s", "cc", 5);
  v1::GenerateRequest request = Request("r");
  const Completion first = Send(request);
  request.set_expected_revision(first.started.revision());
  ExpectRepeated(Send(request), first);
  Suspend("s");
  ExpectRepeated(Send(request), first);
}

TEST_F(RepeatTest, WhatWasStreamedIsRepeatedWithStopAndReason) {
  v1::GenerateRequest request = Request("r");
  request.mutable_stopping()->set_max_new_tokens(200);
  // A letter from the middle; the pieces of longer characters stay out.
  const std::string said =
      Generate(server_.inference(), TextRequest("abc d", 200)).text;
  const size_t at = said.find_first_of("abcde", said.size() / 2);
  ASSERT_NE(at, std::string::npos);
  request.mutable_stopping()->add_stop(said.substr(at, 1));
  const Completion first = Send(request);
  EXPECT_EQ(first.finished.at(0).reason(), v1::FINISH_REASON_STOP_STRING);
  ExpectRepeated(Send(request), first);
}

TEST_F(RepeatTest, AnotherRequestUnderThatIdIsRefusedByName) {
  const Completion first = Send(Request("r"));
  std::vector<v1::GenerateRequest> others(4, Request("r"));
  others[0].set_text("abc dd");
  others[1].mutable_sampling()->set_temperature(0);
  others[2].mutable_stopping()->set_max_new_tokens(21);
  (*others[3].mutable_sampling()->mutable_logit_bias())[3] = 1;
  for (const v1::GenerateRequest& other : others) {
    const Completion refused = Send(other);
    EXPECT_EQ(refused.status.error_code(), kInvalidArgument);
    EXPECT_THAT(refused.status.error_message(),
                HasSubstr("request_id: r made revision 1 of session s"));
  }
  v1::AppendRequest append;
  append.set_session_id("s");
  append.set_request_id("r");
  append.set_text("abc d");
  Call<v1::AppendResponse>(&Stub::Append, append, kInvalidArgument);
  EXPECT_EQ(Get("s").revision(), 1u);
  ExpectRepeated(Send(Request("r")), first);
}

TEST_F(RepeatTest, WhileTheFirstRunsTheSecondIsAborted) {
  Turn("s", "abc", 5);
  server_.gate().Limit(3);
  grpc::ClientContext context;
  v1::GenerateRequest request = Request("r");
  request.mutable_stopping()->set_max_new_tokens(2000);
  auto reader = server_.inference().Generate(&context, request);
  Completion first;
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));  // it has the session
  AddMessage(message, first);
  server_.gate().AwaitBlocked();
  // The first goes on, a step at a time, until the second is answered.
  auto second = std::async(std::launch::async, [&] { return Send(request); });
  EXPECT_TRUE(Eventually([&] {
    server_.gate().Limit(1);
    return second.wait_for(std::chrono::seconds(0)) ==
           std::future_status::ready;
  }));
  EXPECT_EQ(second.get().status.error_code(), kAborted);
  server_.gate().Open();
  while (reader->Read(&message)) AddMessage(message, first);
  EXPECT_TRUE(reader->Finish().ok());
  ExpectRepeated(Send(request), first);
}

TEST_F(RepeatTest, ATurnThatLeftNothingRunsAgain) {
  v1::GenerateRequest request = Request("r");
  request.set_commit(v1::COMMIT_POLICY_NEVER);
  Turn("s", "cc", 5);
  EXPECT_FALSE(Send(request).started.repeated());
  EXPECT_FALSE(Send(request).started.repeated());
  request = Request("r");
  request.clear_session_id();
  request.clear_create_session();
  EXPECT_FALSE(Send(request).started.repeated());
  EXPECT_FALSE(Send(request).started.repeated());
}

TEST_F(RepeatTest, AnAppendIsCarriedOutOnce) {
  v1::AppendRequest request;
  request.set_session_id("s");
  request.set_create_session(true);
  request.set_request_id("r");
  request.set_text("abc d");
  const auto first = Call<v1::AppendResponse>(&Stub::Append, request);
  EXPECT_FALSE(first.repeated());
  const auto again = Call<v1::AppendResponse>(&Stub::Append, request);
  EXPECT_TRUE(again.repeated());
  EXPECT_EQ(again.prompt_tokens(), 3u);
  EXPECT_EQ(again.session().revision(), 1u);
  EXPECT_EQ(again.session().tokens(), 3u);
  request.set_text("abc dd");
  Call<v1::AppendResponse>(&Stub::Append, request, kInvalidArgument);
  request.set_request_id(std::string(129, 'x'));
  Call<v1::AppendResponse>(&Stub::Append, request, kInvalidArgument);
  EXPECT_THAT(status_.error_message(),
              HasSubstr("request_id: 129 bytes are more than 128"));
}

// The store did it, and could not say so.
TEST_F(RepeatTest, AfterAFailureTheSameRequestTellsWhatBecameOfIt) {
  const v1::GenerateRequest request = Request("r");
  server_.store().SetHook([this](StoreCall call) {
    if (call == StoreCall::kPut) {
      server_.store().FailCall(1, StoreFault::kLostAnswer);
    }
  });
  const Completion first = Send(request);
  EXPECT_EQ(first.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  server_.store().SetHook(nullptr);
  const Completion again = Send(request);
  ASSERT_TRUE(again.status.ok()) << again.status.error_message();
  EXPECT_TRUE(again.started.repeated());
  EXPECT_EQ(again.text, first.text);
  EXPECT_EQ(again.token_ids, first.token_ids);
  EXPECT_EQ(again.finished.at(0).revision(), 1u);
}

}  // namespace
}  // namespace reprise
