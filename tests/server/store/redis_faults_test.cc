// The Redis store when the server ends, is silent, or its answers are lost.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "engine/base/clock.h"
#include "tests/server/store/redis_fixture.h"
#include "tests/server/store/tcp_relay.h"

namespace reprise {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using enum absl::StatusCode;

TEST(RedisFaultsTest, AServerThatEndsIsUnavailableUntilItIsBack) {
  RedisServer server;
  const auto store = OpenGood(server.Uri());
  ASSERT_TRUE(PutState(*store, kKey, std::nullopt, 1, "one").ok());
  server.Kill();
  for (int i = 0; i < 2; ++i) {
    const absl::Status put = PutState(*store, kKey, 1, 2, "two");
    EXPECT_EQ(put.code(), kUnavailable);
    EXPECT_THAT(std::string(put.message()),
                AllOf(HasSubstr("Redis at " + server.address()),
                      HasSubstr("Connection refused")));
    EXPECT_EQ(store->GetEntry(kKey).status().code(), kUnavailable);
    EXPECT_EQ(store->List("t", "", 1).status().code(), kUnavailable);
    EXPECT_EQ(store->GetUsage().status().code(), kUnavailable);
  }
  server.Start();
  EXPECT_EQ(StateOf(*store, kKey), "one");  // its log kept what was said
  EXPECT_TRUE(PutState(*store, kKey, 1, 2, "two").ok());
}

// The connections of before are all dead, and nobody sees it.
TEST(RedisFaultsTest, ARestartBetweenTwoCallsIsNotSeen) {
  RedisServer server;
  const auto store = OpenGood(server.Uri());
  ASSERT_TRUE(PutState(*store, kKey, std::nullopt, 0, "0").ok());
  for (uint64_t revision = 1; revision <= 3; ++revision) {
    server.Kill();
    server.Start();
    const absl::Status put = PutState(*store, kKey, revision - 1, revision,
                                      std::to_string(revision));
    EXPECT_TRUE(put.ok()) << put;
    EXPECT_EQ(StateOf(*store, kKey), std::to_string(revision));
  }
}

TEST(RedisFaultsTest, ASilentServerIsUnavailableWithinTheTimeout) {
  RedisServer server;
  const auto store = OpenGood(server.Uri("timeout=200&connect_timeout=200"));
  ASSERT_TRUE(PutState(*store, kKey, std::nullopt, 1, "one").ok());
  server.Signal(SIGSTOP);
  const int64_t start_ns = Clock::Real().MonotonicNs();
  const absl::Status put = PutState(*store, kKey, 1, 2, "two");
  const int64_t ms = (Clock::Real().MonotonicNs() - start_ns) / 1'000'000;
  EXPECT_EQ(put.code(), kUnavailable);
  EXPECT_THAT(std::string(put.message()), HasSubstr("no answer within"));
  EXPECT_GE(ms, 100);
  EXPECT_LE(ms, 10'000);  // much more than 200 on a loaded machine
  // A new connection is made by the kernel, and nobody greets it.
  EXPECT_EQ(store->GetEntry(kKey).status().code(), kUnavailable);
  // Those that come right after do not wait for it again.
  const absl::Status third = store->GetEntry(kKey).status();
  EXPECT_EQ(third.code(), kUnavailable);
  const absl::Status open =
      OpenStore(server.Uri("connect_timeout=100")).status();
  EXPECT_EQ(open.code(), kUnavailable);
  EXPECT_THAT(std::string(open.message()), HasSubstr("no answer within"));
  server.Signal(SIGCONT);
  EXPECT_TRUE(Eventually([&] { return store->GetEntry(kKey).ok(); }));
  EXPECT_EQ(StateOf(*store, kKey), "one");  // the write was not begun
}

TEST(RedisFaultsTest, ALostAnswerToACommitIsFoundOut) {
  RedisServer server;
  TcpRelay relay(server.port());
  const auto store =
      OpenGood("redis://127.0.0.1:" + std::to_string(relay.port()));
  ASSERT_TRUE(PutState(*store, kKey, std::nullopt, 1, "one").ok());
  relay.LoseAnswerTo("EVALSHA");
  const absl::Status put = PutState(*store, kKey, 1, 2, "two");
  EXPECT_TRUE(relay.happened());
  EXPECT_TRUE(put.ok()) << put;
  EXPECT_EQ(StateOf(*store, kKey), "two");
  EXPECT_EQ(store->GetUsage()->bytes, 3u);  // counted once

  relay.LoseAnswerTo("EVALSHA");
  const SessionKey made{"t", "made"};
  EXPECT_TRUE(PutState(*store, made, std::nullopt, 0, "new").ok());
  EXPECT_TRUE(relay.happened());
  EXPECT_EQ(store->GetUsage()->sessions, 2u);

  relay.LoseAnswerTo("EVALSHA");
  EXPECT_TRUE(store->Delete(made).ok());
  EXPECT_TRUE(relay.happened());
  EXPECT_EQ(store->GetUsage()->sessions, 1u);
}

TEST(RedisFaultsTest, ALostAnswerToAReadIsReadAgain) {
  RedisServer server;
  TcpRelay relay(server.port());
  const auto store =
      OpenGood("redis://127.0.0.1:" + std::to_string(relay.port()));
  ASSERT_TRUE(PutState(*store, kKey, std::nullopt, 1, "one").ok());
  relay.LoseAnswerTo("HGET");
  EXPECT_EQ(store->GetEntry(kKey)->revision, 1u);
  EXPECT_TRUE(relay.happened());
  relay.LoseAnswerTo("ZRANGEBYLEX");
  EXPECT_EQ(store->List("t", "", 10)->size(), 1u);
  EXPECT_TRUE(relay.happened());
}

// Whether the first write is part of the other's history cannot be told then.
TEST(RedisFaultsTest, ACommitThatWasOvertakenWhileItsAnswerWasLostIsOpen) {
  RedisServer server;
  TcpRelay relay(server.port());
  const auto store =
      OpenGood("redis://127.0.0.1:" + std::to_string(relay.port()));
  const auto other = OpenGood(server.Uri());
  ASSERT_TRUE(PutState(*store, kKey, std::nullopt, 1, "one").ok());
  relay.LoseAnswerTo("EVALSHA", [&] {
    EXPECT_TRUE(PutState(*other, kKey, 2, 3, "three").ok());
  });
  const absl::Status put = PutState(*store, kKey, 1, 2, "two");
  EXPECT_TRUE(relay.happened());
  EXPECT_EQ(put.code(), kUnavailable);
  EXPECT_THAT(std::string(put.message()), HasSubstr("answer to a write was"));
  EXPECT_EQ(StateOf(*store, kKey), "three");
}

// As one of a server that was stopped between its read and its write.
TEST(RedisFaultsTest, ALateWriteCannotGoOverNewerWork) {
  RedisServer server;
  TcpRelay relay(server.port());
  const auto late =
      OpenGood("redis://127.0.0.1:" + std::to_string(relay.port()));
  const auto other = OpenGood(server.Uri());
  ASSERT_TRUE(PutState(*late, kKey, std::nullopt, 1, "one").ok());
  relay.RunBefore("EVALSHA", [&] {
    EXPECT_TRUE(PutState(*other, kKey, 1, 2, "other's").ok());
  });
  const absl::Status put = PutState(*late, kKey, 1, 2, "late");
  EXPECT_TRUE(relay.happened());
  EXPECT_EQ(put.code(), kAborted);
  EXPECT_THAT(std::string(put.message()),
              HasSubstr("stored is revision 2, expected revision 1"));
  EXPECT_EQ(StateOf(*other, kKey), "other's");
}

TEST(RedisFaultsTest, WhatIsNotRedisIsSaidToBeSo) {
  // The socket of a server that speaks first, and something else.
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 4), 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  std::thread server([listener] {
    const int fd = accept(listener, nullptr, nullptr);
    EXPECT_GT(send(fd, "SSH-2.0-x\r\n", 11, MSG_NOSIGNAL), 0);
    char byte;
    while (recv(fd, &byte, 1, 0) > 0) {
    }
    close(fd);
  });
  const absl::Status status =
      OpenStore("redis://127.0.0.1:" + std::to_string(ntohs(address.sin_port)))
          .status();
  server.join();
  close(listener);
  EXPECT_EQ(status.code(), kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is not Redis"));
}

TEST(RedisFaultsTest, AReplicaCannotBeUsed) {
  RedisServer primary;
  RedisServer replica(
      {"--replicaof", "127.0.0.1 " + std::to_string(primary.port())});
  const absl::Status open = OpenStore(replica.Uri()).status();
  EXPECT_EQ(open.code(), kUnavailable);
  EXPECT_THAT(std::string(open.message()),
              AllOf(HasSubstr("is a replica"), HasSubstr("name the primary")));
}

TEST(RedisFaultsTest, APrimaryThatBecomesAReplicaIsUnavailable) {
  RedisServer primary;
  RedisServer server;
  const auto store = OpenGood(server.Uri());
  RedisTalk talk(server.Uri());
  ASSERT_TRUE(PutState(*store, kKey, std::nullopt, 1, "one").ok());
  talk.Say({"REPLICAOF", "127.0.0.1", std::to_string(primary.port())});
  // On the connection that it has, then on new ones.
  for (int i = 0; i < 2; ++i) {
    const absl::Status put =
        PutState(*store, {"t", "new"}, std::nullopt, 1, "two");
    EXPECT_EQ(put.code(), kUnavailable);
    EXPECT_THAT(std::string(put.message()),
                AnyOf(HasSubstr("READONLY"), HasSubstr("is a replica")));
  }
  talk.Say({"REPLICAOF", "NO", "ONE"});
  EXPECT_TRUE(PutState(*store, {"t", "new"}, std::nullopt, 1, "two").ok());
}

TEST(RedisFaultsTest, WritesWaitForReplicasIfTheyAreToldTo) {
  RedisServer primary;
  const auto store = OpenGood(primary.Uri("wait_replicas=1&timeout=400"));
  const absl::Status alone = PutState(*store, kKey, std::nullopt, 1, "one");
  EXPECT_EQ(alone.code(), kUnavailable);
  EXPECT_THAT(std::string(alone.message()),
              HasSubstr("0 replicas of Redis have the write, wait_replicas is "
                        "1; it may be stored all the same"));
  RedisServer replica(
      {"--replicaof", "127.0.0.1 " + std::to_string(primary.port())});
  // Until it has come up to date.
  uint64_t revision = 1;
  EXPECT_TRUE(Eventually([&] {
    const absl::Status put =
        PutState(*store, kKey, revision, revision + 1, "more");
    EXPECT_TRUE(put.ok() || absl::IsUnavailable(put)) << put;
    ++revision;
    return put.ok();
  }));
}

}  // namespace
}  // namespace reprise
