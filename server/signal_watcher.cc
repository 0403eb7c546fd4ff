#include "server/signal_watcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "engine/base/log.h"

namespace reprise {

SignalWatcher::SignalWatcher() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);  // the terminal was closed
  CHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC);
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  CHECK(signal_fd_ >= 0 && stop_fd_ >= 0);
  thread_ = std::thread([this] { Watch(); });
}

SignalWatcher::~SignalWatcher() {
  const uint64_t one = 1;
  CHECK(write(stop_fd_, &one, sizeof(one)) == sizeof(one));
  thread_.join();
  close(stop_fd_);
  close(signal_fd_);
}

bool SignalWatcher::WaitFor(int64_t timeout_ms) {
  MutexLock lock(mu_);
  if (!asked_ && timeout_ms > 0) changed_.WaitFor(mu_, timeout_ms);
  return asked_;
}

void SignalWatcher::Wait() {
  MutexLock lock(mu_);
  while (!asked_) changed_.Wait(mu_);
}

void SignalWatcher::Watch() {
  pollfd fds[2] = {{signal_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
  while (true) {
    if (poll(fds, 2, /*timeout=*/-1) < 0) {
      CHECK(errno == EINTR);
      continue;
    }
    if (fds[1].revents != 0) return;
    signalfd_siginfo info;
    if (read(signal_fd_, &info, sizeof(info)) != sizeof(info)) continue;
    const char* name = info.ssi_signo == SIGTERM  ? "SIGTERM"
                       : info.ssi_signo == SIGINT ? "SIGINT"
                                                  : "SIGHUP";
    MutexLock lock(mu_);
    if (asked_) {
      LogWarning("second signal: ending at once", {{"signal", name}});
      std::_Exit(1);
    }
    LogInfo("asked to end", {{"signal", name}});
    asked_ = true;
    changed_.NotifyAll();
  }
}

}  // namespace reprise
