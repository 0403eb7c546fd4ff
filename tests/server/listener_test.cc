#include "server/listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/support/scrape.h"

namespace reprise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::unique_ptr<Listener> MustBind(const std::string& address) {
  auto listener = Listener::Bind(address);
  EXPECT_TRUE(listener.ok()) << listener.status();
  return listener.ok() ? *std::move(listener) : nullptr;
}

std::string Message(const std::string& address) {
  return std::string(Listener::Bind(address).status().message());
}

std::string AddressOf(const Listener& listener) {
  return "127.0.0.1:" + std::to_string(listener.port());
}

// Connections are counted, and closed at once.
void StartCounting(Listener& listener, std::atomic<int>& taken) {
  EXPECT_TRUE(listener
                  .Start([&taken](int fd) {
                    close(fd);
                    ++taken;
                  })
                  .ok());
}

TEST(ListenerTest, AcceptsFromStartToStop) {
  const auto listener = MustBind("localhost:0");
  ASSERT_GT(listener->port(), 0);
  EXPECT_EQ(ConnectToPort(listener->port()), -1) << "not yet";
  std::atomic<int> taken = 0;
  StartCounting(*listener, taken);
  const int fd = ConnectToPort(listener->port());
  EXPECT_GE(fd, 0);
  EXPECT_TRUE(Eventually([&] { return taken == 1; }));
  close(fd);
  listener->Stop();
  EXPECT_EQ(ConnectToPort(listener->port()), -1) << "no more";
}

TEST(ListenerTest, WarnsOfAnAddressThatOthersReach) {
  for (const char* here : {"127.0.0.1:0", "127.0.0.2:0", "localhost:0"}) {
    testing::internal::CaptureStderr();
    MustBind(here);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << here;
  }
  testing::internal::CaptureStderr();
  MustBind("0.0.0.0:0");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("without TLS and without authentication"),
                    HasSubstr("listen=0.0.0.0:0")));
}

TEST(ListenerTest, SaysWhyItCannotListen) {
  const auto first = MustBind("127.0.0.1:0");
  const std::string address = AddressOf(*first);
  // Two may be bound as long as none listens; then the second is told late.
  const auto second = MustBind(address);
  ASSERT_TRUE(first->Start([](int fd) { close(fd); }).ok());
  EXPECT_EQ(second->Start([](int fd) { close(fd); }).message(),
            "cannot listen on " + address + ": Address already in use");
  const absl::Status third = Listener::Bind(address).status();
  EXPECT_EQ(third.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(third.message(),
            "cannot listen on " + address + ": Address already in use");
  EXPECT_THAT(Message("192.0.2.1:0"),
              HasSubstr("192.0.2.1:0: Cannot assign requested address"));
  EXPECT_THAT(Message("no-such-host.invalid:0"),
              StartsWith("cannot listen on no-such-host.invalid:0: "));
}

// gRPC's own listener is deaf from then on.
TEST(ListenerTest, AcceptsAgainAfterDescriptorsRanOut) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer needs descriptors of its own";
#endif
  const auto listener = MustBind("127.0.0.1:0");
  std::atomic<int> taken = 0;
  StartCounting(*listener, taken);
  // Sockets of the clients are made before there are no more.
  std::vector<int> fds;
  for (int i = 0; i < 2; ++i) {
    fds.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(listener->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto connect_to = [&](int fd) {
    return connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  };
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {3, before.rlim_max};
  testing::internal::CaptureStderr();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_EQ(connect_to(fds[0]), 0) << "waits in the queue of the port";
  usleep(300'000);
  EXPECT_EQ(taken, 0);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(Eventually([&] { return taken == 1; }));
  EXPECT_EQ(connect_to(fds[1]), 0);
  EXPECT_TRUE(Eventually([&] { return taken == 2; }));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("file descriptors run out"),
                    HasSubstr("connections wait")));
  for (const int fd : fds) close(fd);
}

TEST(ListenerTest, StopsThoughMoreAndMoreConnect) {
  const auto listener = MustBind("127.0.0.1:0");
  constexpr int kEnd = 20'000;
  std::atomic<int> taken = 0;
  std::atomic<bool> stopping = false;
  // There is always one more, but for a test that would not end.
  const auto take = [&](int fd) {
    close(fd);
    if (++taken < kEnd) close(ConnectToPort(listener->port()));
    // The accepting thread waits for the one that stops it, not the machine.
    if (taken != 100) return;
    EXPECT_TRUE(Eventually([&] { return stopping.load(); }));
  };
  ASSERT_TRUE(listener->Start(take).ok());
  close(ConnectToPort(listener->port()));
  EXPECT_TRUE(Eventually([&] { return taken >= 100; }));
  stopping = true;
  listener->Stop();
  EXPECT_LT(taken, kEnd);
}

}  // namespace
}  // namespace reprise
