// What GenerateResuming makes of servers that go away: here they only say so,
// or end; tests/integration/replicas_test.cc has real ones.
#include "client/client_resume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>

#include "tests/client/fake_server.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

FakeAnswer Cut(FakeAnswer answer, size_t messages,
               const std::string& text = "the server is shutting down") {
  answer.messages.resize(messages);
  answer.status = grpc::Status(grpc::StatusCode::UNAVAILABLE, text);
  return answer;
}

FakeAnswer CutAndKept(FakeAnswer answer, uint64_t revision) {
  v1::Finished& end = *answer.messages.back().mutable_finished();
  end.set_reason(v1::FINISH_REASON_CANCELLED);
  end.set_revision(revision);
  return answer;
}

class ResumeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto client = Client::Connect(
        {.address = first_->address() + "," + second_->address(),
         .connect_timeout_ms = 60'000});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    request_.set_text("God said");
  }

  absl::Status Run() {
    text_.clear();
    notices_.clear();
    started_ = finished_ = 0;
    return GenerateResuming(
        *client_, request_, options_,
        [this](const v1::GenerateResponse& message) {
          text_ += message.delta().text();
          started_ += message.has_started() ? 1 : 0;
          finished_ += message.has_finished() ? 1 : 0;
          if (message.has_finished()) end_ = message.finished();
          return true;
        },
        [this](const std::string& notice) { notices_.push_back(notice); },
        cancellation_);
  }

  // A server by itself ends in the turn and comes back. It has kept a part as
  // revision 1 of the session, which is at `revision_now` when it is back.
  void KeepAPart(uint64_t revision_now = 1) {
    auto client = Client::Connect({.address = second_->address()});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    v1::Session session;
    session.set_id("s");
    session.set_revision(revision_now);
    session.set_tokens(18);
    session.add_checkpoints()->set_revision(0);
    second_->sessions.Put(session);
    FakeAnswer whole = AnswerOf({"Let ", "there ", "be"}, "s");
    FakeAnswer part = CutAndKept(AnswerOf({"Let ", "there "}, "s"), 1);
    part.status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "shutting down");
    second_->inference.QueueAnswer(part);
    whole.messages[0].mutable_started()->set_revision(2);
    second_->inference.SetAnswer(whole);
    request_.set_session_id("s");
  }

  void ExpectWhole(const absl::Status& status, const std::string& text) {
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(text_, text);
    EXPECT_EQ(started_, 1);
    EXPECT_EQ(finished_, 1);
  }

  std::unique_ptr<FakeServer> first_ = std::make_unique<FakeServer>();
  std::unique_ptr<FakeServer> second_ = std::make_unique<FakeServer>();
  std::unique_ptr<Client> client_;
  v1::GenerateRequest request_;
  ResumeOptions options_;
  Cancellation cancellation_;
  std::string text_;
  std::vector<std::string> notices_;
  int started_ = 0;
  int finished_ = 0;
  v1::Finished end_;
};

TEST_F(ResumeTest, WithoutAFailureItIsOneCall) {
  first_->inference.SetAnswer(AnswerOf({"Let ", "there ", "be"}));
  ExpectWhole(Run(), "Let there be");
  EXPECT_THAT(notices_, IsEmpty());
  EXPECT_EQ(first_->inference.generate_calls(), 1);
  EXPECT_TRUE(first_->inference.last_request().sampling().has_seed());
  EXPECT_FALSE(first_->inference.last_request().has_request_id());
}

TEST_F(ResumeTest, GoesOnWhereTheFirstServerStopped) {
  const FakeAnswer whole = AnswerOf({"Let ", "there ", "be"}, "s");
  first_->inference.SetAnswer(Cut(whole, 3));
  second_->inference.SetAnswer(whole);
  request_.set_session_id("s");
  ExpectWhole(Run(), "Let there be");
  EXPECT_THAT(notices_,
              ElementsAre("the server is shutting down; continued on " +
                          second_->address()));
  // The same request again, but for the revision that Started told.
  v1::GenerateRequest again = second_->inference.last_request();
  EXPECT_EQ(again.expected_revision(), whole.messages[0].started().revision());
  EXPECT_NE(again.request_id(), "");
  again.clear_expected_revision();
  EXPECT_EQ(again.SerializeAsString(),
            first_->inference.last_request().SerializeAsString());
}

TEST_F(ResumeTest, WhatTheCallerChoseStays) {
  first_->inference.SetAnswer(Cut(AnswerOf({}), 0));
  second_->inference.SetAnswer(AnswerOf({"x"}));
  request_.set_session_id("s");
  request_.set_request_id("mine");
  request_.mutable_sampling()->set_seed(9);
  ExpectWhole(Run(), "x");
  EXPECT_EQ(second_->inference.last_request().SerializeAsString(),
            request_.SerializeAsString());
}

TEST_F(ResumeTest, AServerThatEndsIsLeft) {
  FakeAnswer hanging = Cut(AnswerOf({"Let ", "there "}), 2);
  hanging.wait_for_cancel = true;
  first_->inference.SetAnswer(hanging);
  second_->inference.SetAnswer(AnswerOf({"Let ", "there ", "be"}));
  const std::string address = first_->address();
  std::thread end([this] {
    while (first_->inference.generate_calls() == 0) std::this_thread::yield();
    first_.reset();
  });
  ExpectWhole(Run(), "Let there be");
  end.join();
  EXPECT_THAT(notices_,
              ElementsAre("the server at " + address +
                          " went away; continued on " + second_->address()));
}

TEST_F(ResumeTest, AnotherAnswerIsAnError) {
  first_->inference.SetAnswer(Cut(AnswerOf({"Let ", "there "}), 3));
  second_->inference.SetAnswer(AnswerOf({"Let us"}));
  const absl::Status status = Run();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_EQ(text_, "Let there ");
  EXPECT_EQ(finished_, 0);
}

TEST_F(ResumeTest, AnEndThatWasHeardIsTheEnd) {
  FakeAnswer answer = AnswerOf({"x"});
  answer.status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
  first_->inference.SetAnswer(answer);
  ExpectWhole(Run(), "x");
  EXPECT_EQ(second_->inference.generate_calls(), 0);
}

TEST_F(ResumeTest, WhatADyingServerKeptIsRewound) {
  KeepAPart();
  ExpectWhole(Run(), "Let there be");
  EXPECT_NE(end_.reason(), v1::FINISH_REASON_CANCELLED);
  EXPECT_EQ(second_->sessions.last_rewind().revision(), 0u);
  EXPECT_EQ(second_->sessions.last_rewind().expected_revision(), 1u);
  EXPECT_EQ(second_->inference.last_request().expected_revision(), 2u);
}

TEST_F(ResumeTest, AServerThatGoesAwayBeforeItRewindsIsNotTheEnd) {
  KeepAPart();
  second_->sessions.LoseRewind(/*carried_out=*/false);
  ExpectWhole(Run(), "Let there be");
  EXPECT_EQ(second_->inference.last_request().expected_revision(), 2u);
}

TEST_F(ResumeTest, AServerThatGoesAwayAfterItRewoundIsNotTheEnd) {
  KeepAPart();
  second_->sessions.LoseRewind(/*carried_out=*/true);
  ExpectWhole(Run(), "Let there be");
  EXPECT_EQ(second_->inference.last_request().expected_revision(), 2u);
}

TEST_F(ResumeTest, ASessionThatOthersWentOnWithIsNotRewound) {
  KeepAPart(/*revision_now=*/2);
  const absl::Status status = Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("cannot be rewound to continue"));
  EXPECT_EQ(end_.reason(), v1::FINISH_REASON_CANCELLED);
}

// It goes on, and finds only later that nobody listens: the second hears
// Aborted, and then what the first has recorded.
TEST_F(ResumeTest, WaitsForAFirstTryThatStillRuns) {
  v1::Session session;
  session.set_id("s");
  first_->sessions.Put(session);
  second_->sessions.Put(session);
  FakeAnswer whole = AnswerOf({"Let ", "there "}, "s");
  first_->inference.QueueAnswer(Cut(whole, 2, "lost"));
  second_->inference.QueueAnswer(
      ErrorAnswer(grpc::StatusCode::ABORTED, "a turn is running"));
  whole.messages[0].mutable_started()->set_repeated(true);
  second_->inference.SetAnswer(whole);
  request_.set_session_id("s");
  ExpectWhole(Run(), "Let there ");
  EXPECT_EQ(second_->inference.generate_calls(), 2);
}

TEST_F(ResumeTest, SomebodyElsesTurnEndsIt) {
  v1::Session session;
  session.set_id("s");
  session.set_revision(1);
  first_->sessions.Put(session);
  second_->sessions.Put(session);
  first_->inference.SetAnswer(Cut(AnswerOf({"Let "}, "s"), 2));
  second_->inference.SetAnswer(
      ErrorAnswer(grpc::StatusCode::ABORTED, "s is at revision 1"));
  request_.set_session_id("s");
  EXPECT_EQ(Run(), absl::AbortedError("s is at revision 1"));
  EXPECT_EQ(second_->inference.generate_calls(), 2);
}

TEST_F(ResumeTest, OtherErrorsAreNotTriedAgain) {
  first_->inference.SetAnswer(
      ErrorAnswer(grpc::StatusCode::ABORTED, "a turn is running"));
  request_.set_session_id("s");
  EXPECT_EQ(Run(), absl::AbortedError("a turn is running"));
  EXPECT_EQ(first_->inference.generate_calls(), 1);
  options_.timeout_ms = 0;
  first_->inference.SetAnswer(ErrorAnswer(grpc::StatusCode::UNAVAILABLE, "x"));
  EXPECT_EQ(Run(), absl::UnavailableError("x"));
  EXPECT_EQ(first_->inference.generate_calls(), 2);
}

TEST_F(ResumeTest, GivesUpInTime) {
  first_->inference.SetAnswer(ErrorAnswer(grpc::StatusCode::UNAVAILABLE, "x"));
  second_->inference.SetAnswer(ErrorAnswer(grpc::StatusCode::UNAVAILABLE, "y"));
  options_.timeout_ms = 700;
  const absl::Status status = Run();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("; tried again for 700 ms"));
  EXPECT_GT(first_->inference.generate_calls(), 1);
  EXPECT_GT(second_->inference.generate_calls(), 1);
}

TEST_F(ResumeTest, ARequestThatEndsServersIsGivenUp) {
  first_->inference.SetAnswer(Cut(AnswerOf({"Let "}), 2));
  second_->inference.SetAnswer(Cut(AnswerOf({"Let "}), 2));
  const absl::Status status = Run();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("5 servers in a row went away with this turn"));
  EXPECT_EQ(
      first_->inference.generate_calls() + second_->inference.generate_calls(),
      5);
}

TEST_F(ResumeTest, CancellationEndsTheWait) {
  first_->inference.SetAnswer(ErrorAnswer(grpc::StatusCode::UNAVAILABLE, "x"));
  second_->inference.SetAnswer(ErrorAnswer(grpc::StatusCode::UNAVAILABLE, "y"));
  options_.timeout_ms = 3'600'000;
  std::thread canceller([this] {
    while (second_->inference.generate_calls() < 3) std::this_thread::yield();
    cancellation_.Cancel();
  });
  EXPECT_TRUE(absl::IsCancelled(Run()));
  canceller.join();
}

}  // namespace
}  // namespace reprise
