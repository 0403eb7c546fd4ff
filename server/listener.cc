#include "server/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "server/option_values.h"

namespace reprise {
namespace {

constexpr int kPauseMs = 100;
// Connections taken before the thread looks whether it is to stop, and at its
// other addresses.
constexpr int kMostAtOnce = 64;
// As long as gRPC waits for the answer to a ping: data that nobody
// acknowledges ends the connection.
constexpr int kUserTimeoutMs = 20'000;

absl::Status CannotListen(const std::string& address, const char* reason) {
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", address, ": ", reason));
}

int PortOf(const sockaddr* address) {
  if (address->sa_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(address)->sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in*>(address)->sin_port);
}

bool IsLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET6) {
    const in6_addr& ip =
        reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&ip);
  }
  const in_addr_t ip =
      ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
  return ip >> 24 == IN_LOOPBACKNET;
}

// Connections inherit these.
void SetOptions(int fd) {
  const auto set = [fd](int level, int option, int value) {
    setsockopt(fd, level, option, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_REUSEADDR, 1);  // connections of the last server linger
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
}

// The kernel gives a new descriptor the lowest free number: one that is high
// means that all below are in use.
bool LeavesTooFew(int fd) {
  constexpr rlim_t kReserved = 64;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  const rlim_t reserved = std::min(kReserved, limit.rlim_cur / 8);
  return static_cast<rlim_t>(fd) >= limit.rlim_cur - reserved;
}

// At most once a minute: whoever has no descriptors left has many clients.
void WarnOfDescriptors(const char* consequence) {
  constexpr int64_t kMinuteNs = 60'000'000'000;
  static int64_t next_ns = 0;  // of the one thread that accepts
  const int64_t now_ns = Clock::Real().MonotonicNs();
  if (now_ns < next_ns) return;
  next_ns = now_ns + kMinuteNs;
  LogWarning("file descriptors run out",
             {{"consequence", consequence}, {"advice", "raise ulimit -n"}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Bind(
    const std::string& address) {
  const std::optional<HostPort> parts = ParseHostPort(address);
  if (!parts.has_value()) return CannotListen(address, "it is not HOST:PORT");
  std::string host = parts->host;
  if (host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(
      host.c_str(), std::to_string(parts->port).c_str(), &hints, &found);
  if (error != 0) return CannotListen(address, gai_strerror(error));
  std::unique_ptr<Listener> listener(new Listener);
  listener->address_ = address;
  absl::Status status;
  bool beyond = false;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    const absl::Status bound = listener->BindOne(*info);
    if (bound.ok() && !IsLoopback(info->ai_addr)) beyond = true;
    status.Update(bound);
  }
  freeaddrinfo(found);
  if (listener->fds_.empty()) return status;
  if (beyond) {
    LogWarning(
        "listening beyond this machine, without TLS and without "
        "authentication: who reaches the port reads and changes all sessions",
        {{"listen", address},
         {"advice", "listen on 127.0.0.1, or behind a proxy or a firewall"}});
  }
  return listener;
}

absl::Status Listener::BindOne(const addrinfo& info) {
  const int fd =
      socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return CannotListen(address_, std::strerror(errno));
  SetOptions(fd);
  sockaddr_storage address{};
  std::memcpy(&address, info.ai_addr, info.ai_addrlen);
  auto* bound = reinterpret_cast<sockaddr*>(&address);
  // The first address decides the port of all.
  if (port_ != 0) {
    const uint16_t port = htons(static_cast<uint16_t>(port_));
    if (info.ai_family == AF_INET6) {
      reinterpret_cast<sockaddr_in6*>(bound)->sin6_port = port;
    } else {
      reinterpret_cast<sockaddr_in*>(bound)->sin_port = port;
    }
  }
  socklen_t size = info.ai_addrlen;
  if (bind(fd, bound, size) != 0 || getsockname(fd, bound, &size) != 0) {
    const int error = errno;
    close(fd);
    return CannotListen(address_, std::strerror(error));
  }
  port_ = PortOf(bound);
  fds_.push_back(fd);
  return absl::OkStatus();
}

absl::Status Listener::Start(Take take) {
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  if (stop_fd_ < 0) return CannotListen(address_, std::strerror(errno));
  for (const int fd : fds_) {
    if (listen(fd, SOMAXCONN) == 0) continue;
    return CannotListen(address_, std::strerror(errno));
  }
  thread_ = std::thread([this, take = std::move(take)] { Work(take); });
  return absl::OkStatus();
}

void Listener::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    CHECK(write(stop_fd_, &one, sizeof(one)) == sizeof(one));
    thread_.join();
  }
  for (const int fd : fds_) close(fd);
  fds_.clear();
  if (stop_fd_ >= 0) close(stop_fd_);
  stop_fd_ = -1;
}

void Listener::Work(const Take& take) {
  std::vector<pollfd> events = {{stop_fd_, POLLIN, 0}};
  for (const int fd : fds_) events.push_back({fd, POLLIN, 0});
  while (true) {
    if (poll(events.data(), events.size(), /*timeout=*/-1) < 0) continue;
    if (events[0].revents != 0) return;
    for (size_t i = 1; i < events.size(); ++i) {
      if (events[i].revents != 0) AcceptSome(events[i].fd, take);
    }
  }
}

void Listener::AcceptSome(int listening_fd, const Take& take) {
  for (int i = 0; i < kMostAtOnce; ++i) {
    const int fd =
        accept4(listening_fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0 && LeavesTooFew(fd)) {
      close(fd);
      WarnOfDescriptors("connections are closed at once");
    } else if (fd >= 0) {
      take(fd);
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      // It stays in the queue of the port; poll finds it there again.
      if (errno == EMFILE || errno == ENFILE) {
        WarnOfDescriptors("connections wait");
      }
      return Pause();
    }
  }
}

void Listener::Pause() const {
  pollfd stop = {stop_fd_, POLLIN, 0};
  poll(&stop, 1, kPauseMs);
}

}  // namespace reprise
