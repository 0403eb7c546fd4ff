// A network that can fail: what is sent to its port goes on to another, until
// the test says that it does not.
#ifndef TESTS_SUPPORT_TCP_RELAY_H_
#define TESTS_SUPPORT_TCP_RELAY_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace reprise {

// Of 127.0.0.1. The functions may be called from any thread.
class TcpRelay {
 public:
  explicit TcpRelay(int to_port) : to_port_(to_port) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = Address(0);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_, any, size), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    EXPECT_EQ(getsockname(listener_, any, &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~TcpRelay() {
    Cut();
    thread_.join();
  }
  TcpRelay(const TcpRelay&) = delete;
  TcpRelay& operator=(const TcpRelay&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  // Nothing more comes from the server to the client, and nobody is told.
  void Hold() { held_ = true; }
  // Soon all connections are closed and nobody listens any more.
  void Cut() { cut_ = true; }

 private:
  struct Pair {
    int client = -1;
    int server = -1;
  };

  static sockaddr_in Address(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    return address;
  }

  void Run() {
    while (!cut_) {
      std::vector<pollfd> fds = {{listener_, POLLIN, 0}};
      for (const Pair& pair : pairs_) {
        fds.push_back({pair.client, POLLIN, 0});
        fds.push_back({held_ ? -1 : pair.server, POLLIN, 0});
      }
      constexpr int kLookMs = 5;  // at what the test says
      if (poll(fds.data(), fds.size(), kLookMs) <= 0) continue;
      std::vector<Pair> open;
      for (size_t i = 0; i < pairs_.size(); ++i) {
        const Pair& pair = pairs_[i];
        const bool lives =
            (fds[2 * i + 1].revents == 0 || Move(pair.client, pair.server)) &&
            (fds[2 * i + 2].revents == 0 || held_ ||
             Move(pair.server, pair.client));
        if (lives) {
          open.push_back(pair);
        } else {
          Close(pair);
        }
      }
      pairs_ = std::move(open);
      if (fds[0].revents != 0) Accept();
    }
    close(listener_);
    for (const Pair& pair : pairs_) Close(pair);
  }

  void Accept() {
    Pair pair;
    pair.client = accept(listener_, nullptr, nullptr);
    pair.server = socket(AF_INET, SOCK_STREAM, 0);
    // As the ends have it: or what is small waits for 40 ms.
    const int yes = 1;
    for (const int fd : {pair.client, pair.server}) {
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    }
    const sockaddr_in address = Address(to_port_);
    if (connect(pair.server, reinterpret_cast<const sockaddr*>(&address),
                sizeof(address)) == 0) {
      pairs_.push_back(pair);
    } else {
      Close(pair);
    }
  }

  static void Close(const Pair& pair) {
    close(pair.client);
    close(pair.server);
  }

  // False at the end of either.
  static bool Move(int from, int to) {
    std::array<char, 1 << 16> bytes;
    const ssize_t size = read(from, bytes.data(), bytes.size());
    ssize_t sent = 0;
    while (sent < size) {
      const ssize_t more = send(to, bytes.data() + sent,
                                static_cast<size_t>(size - sent), MSG_NOSIGNAL);
      if (more <= 0) return false;
      sent += more;
    }
    return size > 0;
  }

  const int to_port_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> held_{false};
  std::atomic<bool> cut_{false};
  std::vector<Pair> pairs_;  // the thread's
  std::thread thread_;
};

}  // namespace reprise

#endif  // TESTS_SUPPORT_TCP_RELAY_H_
