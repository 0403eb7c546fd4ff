#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "server/store/redis_channel.h"

namespace reprise {
namespace {

class RedisSocket : public RedisChannel {
 public:
  explicit RedisSocket(int fd) : fd_(fd) {}
  ~RedisSocket() override { close(fd_); }
  RedisSocket(const RedisSocket&) = delete;
  RedisSocket& operator=(const RedisSocket&) = delete;

  absl::Status Connect(const sockaddr* address, socklen_t size,
                       const RedisPatience& patience) {
    if (connect(fd_, address, size) == 0) return absl::OkStatus();
    // A local socket whose queue is full says EAGAIN, and will not tell when
    // there is room.
    if (errno != EINPROGRESS) return Lost("cannot connect", errno);
    RETURN_IF_ERROR(Await(POLLOUT, patience));
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length);
    return error == 0 ? absl::OkStatus() : Lost("cannot connect", error);
  }

  absl::Status Send(std::string_view bytes,
                    const RedisPatience& patience) override {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent >= 0) {
        bytes.remove_prefix(static_cast<size_t>(sent));
      } else if (errno == EAGAIN) {
        RETURN_IF_ERROR(Await(POLLOUT, patience));
      } else if (errno != EINTR) {
        return Lost("cannot write", errno);
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> Receive(std::span<char> buffer,
                                 const RedisPatience& patience) override {
    while (true) {
      const ssize_t received = recv(fd_, buffer.data(), buffer.size(), 0);
      if (received > 0) return static_cast<size_t>(received);
      if (received == 0) {
        return absl::UnavailableError("the server has closed the connection");
      }
      if (errno == EAGAIN) {
        RETURN_IF_ERROR(Await(POLLIN, patience));
      } else if (errno != EINTR) {
        return Lost("cannot read", errno);
      }
    }
  }

  bool Quiet() const override {
    pollfd waiting = {fd_, POLLIN, 0};
    return poll(&waiting, 1, /*timeout=*/0) == 0;
  }

 private:
  static absl::Status Lost(const char* what, int error) {
    return absl::UnavailableError(
        absl::StrCat(what, ": ", std::strerror(error)));
  }

  absl::Status Await(short events, const RedisPatience& patience) const {
    const int64_t start_ns = Clock::Real().MonotonicNs();
    const int64_t end_ns =
        std::min(patience.end_ns, start_ns + patience.silence_ms * 1'000'000);
    while (true) {
      const int64_t left_ns = end_ns - Clock::Real().MonotonicNs();
      if (left_ns <= 0) {
        return absl::DeadlineExceededError(absl::StrCat(
            "no answer within ", (end_ns - start_ns) / 1'000'000, " ms"));
      }
      pollfd waiting = {fd_, events, 0};
      // Errors and hang-ups wake it up too, and the next call finds them.
      const int ready =
          poll(&waiting, 1, static_cast<int>(left_ns / 1'000'000 + 1));
      if (ready > 0) return absl::OkStatus();
      if (ready < 0 && errno != EINTR) return Lost("cannot wait", errno);
    }
  }

  const int fd_;
};

// A connection over which nothing has come for half a minute is probed, so that
// one that was dropped on the way is found before it is used.
void SetTcpOptions(int fd) {
  const auto set = [fd](int level, int name, int value) {
    setsockopt(fd, level, name, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

absl::StatusOr<std::unique_ptr<RedisChannel>> ConnectTo(
    int family, const sockaddr* address, socklen_t size,
    const RedisPatience& patience) {
  const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot make a socket: ", std::strerror(errno)));
  }
  auto channel = std::make_unique<RedisSocket>(fd);
  if (family != AF_UNIX) SetTcpOptions(fd);
  RETURN_IF_ERROR(channel->Connect(address, size, patience));
  return channel;
}

absl::StatusOr<std::unique_ptr<RedisChannel>> ConnectLocal(
    const std::string& path, const RedisPatience& patience) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return ConnectTo(AF_UNIX, reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address), patience);
}

// Tries every address of the host, in the resolver's order.
absl::StatusOr<std::unique_ptr<RedisChannel>> ConnectTcp(
    const RedisAddress& address, const RedisPatience& patience) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(),
                  &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot look the host up: ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found,
                                                                 freeaddrinfo);
  absl::Status last;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    absl::StatusOr<std::unique_ptr<RedisChannel>> channel =
        ConnectTo(at->ai_family, at->ai_addr, at->ai_addrlen, patience);
    if (channel.ok()) return channel;
    last = channel.status();
  }
  return last;
}

}  // namespace

RedisPatience RedisPatience::For(int64_t silence_ms, int64_t total_ms) {
  return {silence_ms, Clock::Real().MonotonicNs() + total_ms * 1'000'000};
}

absl::StatusOr<std::unique_ptr<RedisChannel>> ConnectRedisSocket(
    const RedisAddress& address, const RedisPatience& patience) {
  return address.path.empty() ? ConnectTcp(address, patience)
                              : ConnectLocal(address.path, patience);
}

}  // namespace reprise
