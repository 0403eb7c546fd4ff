#include "client/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "tests/client/fake_server.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;

std::string Message(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

class ClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto client = Client::Connect({.address = server_.address()});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  FakeServer server_;
  std::unique_ptr<Client> client_;
};

TEST_F(ClientTest, StreamsMessagesInOrder) {
  server_.inference.SetAnswer(AnswerOf({"Let ", "there ", "be"}));
  v1::GenerateRequest request;
  request.set_text("God said");
  std::string text;
  int messages = 0;
  const absl::Status status =
      client_->Generate(request, [&](const v1::GenerateResponse& message) {
        ++messages;
        text += message.delta().text();
        return true;
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(text, "Let there be");
  EXPECT_EQ(messages, 5);
  EXPECT_EQ(server_.inference.last_request().text(), "God said");
}

TEST_F(ClientTest, GivesTheServersCodeAndText) {
  server_.inference.SetAnswer(
      ErrorAnswer(grpc::StatusCode::ABORTED, "session busy"));
  const absl::Status status = client_->Generate(
      v1::GenerateRequest(), [](const v1::GenerateResponse&) { return true; });
  EXPECT_EQ(status, absl::AbortedError("session busy"));
}

TEST_F(ClientTest, EndsTheCallWhenTheCallerWantsNoMore) {
  FakeAnswer answer = AnswerOf({"again"});
  answer.endless = true;
  server_.inference.SetAnswer(answer);
  int messages = 0;
  const absl::Status status = client_->Generate(
      v1::GenerateRequest(),
      [&](const v1::GenerateResponse&) { return ++messages < 3; });
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_EQ(messages, 3);
}

TEST_F(ClientTest, CancellationFromAnotherThreadEndsTheCall) {
  FakeAnswer answer = AnswerOf({"one"});
  answer.wait_for_cancel = true;
  server_.inference.SetAnswer(answer);
  Cancellation cancellation;
  std::thread canceller;
  const absl::Status status = client_->Generate(
      v1::GenerateRequest(),
      [&](const v1::GenerateResponse& message) {
        if (message.has_finished()) {
          canceller = std::thread([&] { cancellation.Cancel(); });
        }
        return true;
      },
      &cancellation);
  canceller.join();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_TRUE(cancellation.cancelled());
}

TEST_F(ClientTest, CancellationBeforeTheCallEndsItAtOnce) {
  FakeAnswer answer;
  answer.wait_for_cancel = true;
  server_.inference.SetAnswer(answer);
  Cancellation cancellation;
  cancellation.Cancel();
  const absl::Status status = client_->Generate(
      v1::GenerateRequest(), [](const v1::GenerateResponse&) { return true; },
      &cancellation);
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

TEST_F(ClientTest, CallsEveryMethodOfSessions) {
  v1::CreateSessionRequest create;
  create.set_id("s");
  EXPECT_TRUE(client_->CreateSession(create).ok());
  EXPECT_EQ(client_->GetSession("s")->id(), "s");
  v1::ListSessionsRequest list;
  list.set_page_size(10);
  EXPECT_EQ(client_->ListSessions(list)->sessions_size(), 1);
  v1::AppendRequest append;
  append.set_session_id("s");
  append.set_text("four");
  EXPECT_EQ(client_->Append(append)->prompt_tokens(), 4u);
  EXPECT_EQ(client_->SuspendSession("s")->place(), v1::SESSION_PLACE_SUSPENDED);
  EXPECT_EQ(client_->ResumeSession("s")->resumed_from(),
            v1::RESUME_SOURCE_STORE);
  v1::ForkSessionRequest fork;
  fork.set_id("s");
  fork.set_new_id("t");
  EXPECT_EQ(client_->ForkSession(fork)->forked_from(), "s");
  v1::RewindSessionRequest rewind;
  rewind.set_id("t");
  EXPECT_EQ(client_->RewindSession(rewind)->revision(), 1u);
  rewind.set_revision(2);
  EXPECT_EQ(client_->RewindSession(rewind).status(),
            absl::OutOfRangeError("not kept"));
  v1::TouchSessionRequest touch;
  touch.set_id("t");
  EXPECT_EQ(client_->TouchSession(touch)->id(), "t");
  EXPECT_TRUE(client_->DeleteSession("t").ok());
  EXPECT_EQ(client_->GetSession("t").status(),
            absl::NotFoundError("no session 't'"));
}

TEST_F(ClientTest, StreamsScores) {
  v1::ScoreRequest request;
  request.set_text("abcd");
  std::vector<uint64_t> scored;
  EXPECT_TRUE(client_
                  ->Score(request,
                          [&scored](const v1::ScoreResponse& message) {
                            scored.push_back(message.totals().scored_tokens());
                            return true;
                          })
                  .ok());
  EXPECT_THAT(scored, ::testing::ElementsAre(1, 2, 3));
  const absl::Status ended =
      client_->Score(request, [](const v1::ScoreResponse&) { return false; });
  EXPECT_TRUE(absl::IsCancelled(ended)) << ended;
  request.set_text("a");
  EXPECT_EQ(
      client_->Score(request, [](const v1::ScoreResponse&) { return true; }),
      absl::InvalidArgumentError("text: too short"));
}

TEST_F(ClientTest, CallsTheMethodsOfTokensAndModel) {
  v1::TokenizeRequest tokenize;
  tokenize.set_text("ab");
  EXPECT_THAT(client_->Tokenize(tokenize)->ids(),
              ::testing::ElementsAre('a', 'b'));
  v1::DetokenizeRequest detokenize;
  detokenize.add_ids('c');
  EXPECT_EQ(client_->Detokenize(detokenize)->text(), "c");
  EXPECT_EQ(client_->GetModel()->name(), "fake");
}

TEST(ClientConnectTest, SaysWhereNobodyListens) {
  std::string address;
  {
    FakeServer server;
    address = server.address();
  }
  const auto client = Client::Connect({.address = address});
  EXPECT_TRUE(absl::IsUnavailable(client.status())) << client.status();
  EXPECT_THAT(Message(client.status()), HasSubstr("no server at " + address));
}

// Answers every connection with a text, and closes it.
class Stranger {
 public:
  explicit Stranger(const std::string& answer) {
    auto* address = reinterpret_cast<sockaddr*>(&bound_);
    bound_.sin_family = AF_INET;
    bound_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(bound_);
    EXPECT_EQ(bind(listener_, address, size), 0);
    EXPECT_EQ(getsockname(listener_, address, &size), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    thread_ = std::thread([this, answer] {
      while (true) {
        const int fd = accept(listener_, nullptr, nullptr);
        if (fd < 0) return;
        EXPECT_EQ(send(fd, answer.data(), answer.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(answer.size()));
        close(fd);
      }
    });
  }
  ~Stranger() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }

  std::string address() const {
    return "127.0.0.1:" + std::to_string(ntohs(bound_.sin_port));
  }

 private:
  const int listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in bound_{};
  std::thread thread_;
};

TEST(ClientConnectTest, AServerThatSpeaksNoGrpcIsNotTakenForNone) {
  // The second is that of the port of the metrics.
  for (const char* answer : {"HTTP/1.1 400 Bad Request\r\n\r\n",
                             "HTTP/2.0 400 Bad Request\r\n\r\n"}) {
    const Stranger stranger(answer);
    const auto client = Client::Connect({.address = stranger.address()});
    EXPECT_TRUE(absl::IsUnavailable(client.status())) << client.status();
    EXPECT_THAT(Message(client.status()),
                HasSubstr("what answers at " + stranger.address() +
                          " is no Reprise server"));
  }
}

TEST(ClientConnectTest, ReportsServerThatWentAway) {
  auto server = std::make_unique<FakeServer>();
  const auto client = Client::Connect({.address = server->address()});
  ASSERT_TRUE(client.ok()) << client.status();
  server.reset();
  const absl::Status status = (*client)->GetModel().status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

}  // namespace
}  // namespace reprise
