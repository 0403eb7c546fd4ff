// A pipe whose ends close with it.
#ifndef TESTS_CLIENT_PIPE_H_
#define TESTS_CLIENT_PIPE_H_

#include <unistd.h>

#include <string>
#include <string_view>

#include "client/input.h"
#include "engine/base/log.h"

namespace reprise {

class Pipe {
 public:
  Pipe() { CHECK(pipe(fds_) == 0); }
  ~Pipe() {
    CloseRead();
    CloseWrite();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int read_fd() const { return fds_[0]; }
  int write_fd() const { return fds_[1]; }
  void CloseRead() { Close(fds_[0]); }
  void CloseWrite() { Close(fds_[1]); }
  void Write(std::string_view text) {
    CHECK(write(fds_[1], text.data(), text.size()) ==
          static_cast<ssize_t>(text.size()));
  }
  // Closes the end for writing and returns what was written.
  std::string Drain() {
    CloseWrite();
    return ReadAll(fds_[0]).value();
  }

 private:
  static void Close(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
  int fds_[2] = {-1, -1};
};

}  // namespace reprise

#endif  // TESTS_CLIENT_PIPE_H_
