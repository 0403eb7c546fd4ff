// Several servers on one Redis, all of them real processes, and one more with a
// store of its own that says what a conversation should have been.
#ifndef TESTS_INTEGRATION_REPLICAS_FIXTURE_H_
#define TESTS_INTEGRATION_REPLICAS_FIXTURE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/client.h"
#include "client/client_resume.h"
#include "tests/integration/replica_turn.h"
#include "tests/support/free_port.h"
#include "tests/support/generate_call.h"
#include "tests/support/redis_server.h"
#include "tests/support/server_process.h"

namespace reprise {

inline constexpr int kReplicas = 3;

// Soon: a test does not wait for what people would wait for.
inline constexpr int64_t kReplicaKeepaliveMs = 1'000;

class ReplicasTest : public ::testing::Test {
 protected:
  using OnMessage = std::function<void(const v1::GenerateResponse&)>;

  void SetUp() override {
    for (int i = 0; i < kReplicas; ++i) {
      replicas_.push_back(NewServer(redis_.Uri(), {OnPort(LastingPort())}));
    }
    alone_ = NewServer("memory:");
    for (const auto& replica : replicas_) ASSERT_TRUE(replica->AwaitReady());
    ASSERT_TRUE(alone_->AwaitReady());
  }

  std::unique_ptr<ServerProcess> NewServer(
      const std::string& store, std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.begin(),
                     {"--model=" REPRISE_SOURCE_DIR "/models/embedded",
                      "--slots=16", "--store=" + store});
    return std::make_unique<ServerProcess>(std::move(arguments));
  }

  static std::string OnPort(int port) {
    return "--listen=127.0.0.1:" + std::to_string(port);
  }

  // A new process in the place of one that was killed.
  void Replace(size_t replica) {
    const int port = replicas_[replica]->grpc_port();
    replicas_[replica] = NewServer(redis_.Uri(), {OnPort(port)});
    ASSERT_TRUE(replicas_[replica]->AwaitReady());
  }

  std::string Address(size_t replica) const {
    return "127.0.0.1:" + std::to_string(replicas_[replica]->grpc_port());
  }
  // Of all, beginning with `first`.
  std::string Addresses(size_t first) const {
    std::string all;
    for (size_t i = 0; i < replicas_.size(); ++i) {
      all += (i > 0 ? "," : "") + Address((first + i) % replicas_.size());
    }
    return all;
  }
  // Which replica listens there.
  size_t ReplicaAt(const std::string& address) const {
    size_t i = 0;
    while (i < replicas_.size() && Address(i) != address) ++i;
    return i;
  }

  static std::unique_ptr<Client> Connect(
      const std::string& addresses,
      int64_t keepalive_ms = kReplicaKeepaliveMs) {
    auto client = Client::Connect({.address = addresses,
                                   .connect_timeout_ms = 60'000,
                                   .keepalive_ms = keepalive_ms});
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }

  // The turn through the client library; `on_message` may be empty.
  Completion Resuming(Client& client, const v1::GenerateRequest& request,
                      const OnMessage& on_message,
                      std::vector<std::string>& notices,
                      int64_t timeout_ms = 60'000) {
    Completion completion;
    Cancellation cancellation;
    const absl::Status status = GenerateResuming(
        client, request, {.timeout_ms = timeout_ms},
        [&](const v1::GenerateResponse& message) {
          AddMessage(message, completion);
          if (on_message) on_message(message);
          return true;
        },
        [&](const std::string& notice) {
          notices.push_back(notice);
          ++notices_;
        },
        cancellation);
    completion.status =
        grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                     std::string(status.message()));
    return completion;
  }

  static Completion On(const ServerProcess& server,
                       const v1::GenerateRequest& request) {
    return Generate(*server.NewStub(), request);
  }

  static v1::Session Get(const ServerProcess& server, const std::string& id) {
    v1::GetSessionRequest request;
    request.set_id(id);
    grpc::ClientContext context;
    v1::Session session;
    const grpc::Status status =
        server.NewSessionsStub()->Get(&context, request, &session);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return session;
  }

  static int Sessions(const ServerProcess& server) {
    grpc::ClientContext context;
    v1::ListSessionsResponse page;
    EXPECT_TRUE(server.NewSessionsStub()->List(&context, {}, &page).ok());
    return page.sessions_size();
  }

  RedisServer redis_;
  std::atomic<int> notices_{0};  // of all turns through the client library
  std::vector<std::unique_ptr<ServerProcess>> replicas_;
  std::unique_ptr<ServerProcess> alone_;
};

}  // namespace reprise

#endif  // TESTS_INTEGRATION_REPLICAS_FIXTURE_H_
