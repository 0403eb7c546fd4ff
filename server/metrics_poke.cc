#include "server/metrics_poke.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace reprise {
namespace {

void Poke(const std::string& host, int port) {
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  const std::string name = bracketed ? host.substr(1, host.size() - 2) : host;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found) !=
      0) {
    return;
  }
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    // Does not block: the kernel completes it, or it is refused.
    const int fd =
        socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) continue;
    (void)connect(fd, a->ai_addr, a->ai_addrlen);
    close(fd);
  }
  freeaddrinfo(found);
}

}  // namespace

void PokeWhile(const std::string& host, int port,
               const std::function<void()>& stop) {
  std::atomic<bool> stopped = false;
  std::thread stopper([&] {
    stop();
    stopped = true;
  });
  while (!stopped) {
    Poke(host, port);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  stopper.join();
}

}  // namespace reprise
