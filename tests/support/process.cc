#include "tests/support/process.h"

#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tuple>
#include <utility>

#include "engine/base/log.h"

namespace reprise {
namespace {

void CloseIfOpen(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

// Ends of a pipe that no other child inherits.
std::pair<int, int> MakePipe() {
  int fds[2];
  CHECK(pipe2(fds, O_CLOEXEC) == 0);
  return {fds[0], fds[1]};
}

}  // namespace

Process::Process(const std::vector<std::string>& arguments, Streams streams) {
  int child[3] = {-1, -1, -1};
  if (streams == Streams::kTerminal) {
    int master = -1;
    CHECK(openpty(&master, &child[0], nullptr, nullptr, nullptr) == 0);
    fcntl(master, F_SETFD, FD_CLOEXEC);
    child[1] = child[2] = child[0];
    in_fd_ = master;
    out_fd_ = dup(master);
    fcntl(out_fd_, F_SETFD, FD_CLOEXEC);
  } else {
    std::tie(child[0], in_fd_) = MakePipe();
    std::tie(out_fd_, child[1]) = MakePipe();
    std::tie(err_fd_, child[2]) = MakePipe();
  }
  std::vector<char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  pid_ = fork();
  CHECK(pid_ >= 0);
  if (pid_ == 0) {  // only async-signal-safe calls from here
    signal(SIGPIPE, SIG_DFL);
    if (streams == Streams::kTerminal) {
      setsid();
      ioctl(child[0], TIOCSCTTY, 0);
    }
    for (int i = 0; i < 3; ++i) dup2(child[i], i);
    if (child[0] > 2) close(child[0]);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(child[0]);
  if (streams == Streams::kPipes) {
    close(child[1]);
    close(child[2]);
  }
}

Process::~Process() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  CloseIfOpen(in_fd_);
  CloseIfOpen(out_fd_);
  CloseIfOpen(err_fd_);
}

void Process::Write(std::string_view text) {
  CHECK(write(in_fd_, text.data(), text.size()) ==
        static_cast<ssize_t>(text.size()));
}

void Process::CloseInput() { CloseIfOpen(in_fd_); }
void Process::CloseOutput() { CloseIfOpen(out_fd_); }
void Process::Signal(int signal) { kill(pid_, signal); }

bool Process::ReadMore(int fd, std::string& text) {
  char chunk[4096];
  // A terminal whose other side has gone gives EIO instead of an end.
  const ssize_t size = read(fd, chunk, sizeof(chunk));
  if (size > 0) text.append(chunk, static_cast<size_t>(size));
  return size > 0;
}

bool Process::ReadUntil(std::string_view text) {
  while (true) {
    const size_t found = out_.find(text, searched_);
    if (found != std::string::npos) {
      searched_ = found + text.size();
      return true;
    }
    if (!ReadMore(out_fd_, out_)) return false;
  }
}

int Process::Wait() {
  while (out_fd_ >= 0 && ReadMore(out_fd_, out_)) {
  }
  while (err_fd_ >= 0 && ReadMore(err_fd_, err_)) {
  }
  int status = 0;
  CHECK(waitpid(pid_, &status, 0) == pid_);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace reprise
