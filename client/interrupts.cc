#include "client/interrupts.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "engine/base/log.h"

namespace reprise {

Interrupts::Interrupts() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  CHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC);
  prompt_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  CHECK(signal_fd_ >= 0 && prompt_fd_ >= 0 && stop_fd_ >= 0);
  thread_ = std::thread([this] { Wait(); });
}

Interrupts::~Interrupts() {
  eventfd_write(stop_fd_, 1);
  thread_.join();
  close(signal_fd_);
  close(prompt_fd_);
  close(stop_fd_);
}

void Interrupts::WatchCall(Cancellation* call) {
  MutexLock lock(mu_);
  call_ = call;
}

void Interrupts::WatchPrompt(bool watch) {
  MutexLock lock(mu_);
  prompt_ = watch;
}

void Interrupts::ClearPrompt() {
  eventfd_t count = 0;
  eventfd_read(prompt_fd_, &count);
}

void Interrupts::Wait() {
  while (true) {
    pollfd fds[] = {{signal_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    if (poll(fds, 2, /*timeout=*/-1) < 0) continue;  // EINTR
    if (fds[1].revents != 0) return;
    signalfd_siginfo info;
    if (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) OnInterrupt();
  }
}

void Interrupts::OnInterrupt() {
  MutexLock lock(mu_);
  if (call_ != nullptr && !call_->cancelled()) {
    call_->Cancel();
  } else if (call_ == nullptr && prompt_) {
    eventfd_write(prompt_fd_, 1);
  } else {
    _exit(kInterruptedExitCode);
  }
}

}  // namespace reprise
