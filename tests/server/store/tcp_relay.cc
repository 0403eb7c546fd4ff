#include "tests/server/store/tcp_relay.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <iterator>
#include <utility>
#include <vector>

namespace reprise {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

std::string ReadSome(int from) {
  std::array<char, 64 << 10> buffer;
  const ssize_t size = recv(from, buffer.data(), buffer.size(), 0);
  return size > 0 ? std::string(buffer.data(), static_cast<size_t>(size)) : "";
}

// Passes on what was read; false at the end.
bool PassOn(const std::string& bytes, int to) {
  return !bytes.empty() && send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                               static_cast<ssize_t>(bytes.size());
}

void CloseBoth(int first, int second) {
  close(first);
  close(second);
}

}  // namespace

TcpRelay::TcpRelay(int server_port) : server_port_(server_port) {
  listener_ = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(listen(listener_, 16), 0);
  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  EXPECT_EQ(pipe(wake_.data()), 0);
  thread_ = std::thread([this] { Carry(); });
}

TcpRelay::~TcpRelay() {
  EXPECT_EQ(write(wake_[1], "x", 1), 1);
  thread_.join();
  for (const Pair& pair : pairs_) CloseBoth(pair.client, pair.server);
  CloseBoth(wake_[0], wake_[1]);
  close(listener_);
}

void TcpRelay::Arm(const std::string& sign, bool lose,
                   std::function<void()> run) {
  sign_ = sign;
  lose_ = lose;
  run_ = std::move(run);
  armed_ = true;
}

void TcpRelay::Accept() {
  Pair pair;
  pair.client = accept(listener_, nullptr, nullptr);
  pair.server = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = Loopback(server_port_);
  if (connect(pair.server, reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) != 0) {
    return CloseBoth(pair.client, pair.server);
  }
  pairs_.push_back(pair);
}

void TcpRelay::Fire() {
  if (run_) run_();
  armed_ = false;
}

// False if the connection is over.
bool TcpRelay::Step(Pair& pair, bool client_ready, bool server_ready) {
  if (client_ready) {
    const std::string bytes = ReadSome(pair.client);
    if (armed_ && bytes.find(sign_) != std::string::npos) {
      pair.doomed = lose_;
      if (!lose_) Fire();
    }
    if (!PassOn(bytes, pair.server)) return false;
  }
  if (!server_ready) return true;
  const std::string bytes = ReadSome(pair.server);
  if (!pair.doomed) return PassOn(bytes, pair.client);
  Fire();
  return false;
}

void TcpRelay::Carry() {
  while (true) {
    std::vector<pollfd> fds = {{wake_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const Pair& pair : pairs_) {
      fds.push_back({pair.client, POLLIN, 0});
      fds.push_back({pair.server, POLLIN, 0});
    }
    poll(fds.data(), fds.size(), -1);
    if (fds[0].revents != 0) return;
    size_t i = 2;
    for (auto it = pairs_.begin(); it != pairs_.end(); i += 2) {
      const bool alive =
          Step(*it, fds[i].revents != 0, fds[i + 1].revents != 0);
      if (!alive) CloseBoth(it->client, it->server);
      it = alive ? std::next(it) : pairs_.erase(it);
    }
    if (fds[1].revents != 0) Accept();
  }
}

}  // namespace reprise
