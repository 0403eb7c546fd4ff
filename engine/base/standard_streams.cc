#include "engine/base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace reprise {

void OpenStandardStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    // Takes the lowest free number, which is `fd`: those below are open.
    // Without /dev/null there is nothing better to do than go on.
    if (open("/dev/null", fd == 1 ? O_RDONLY : O_RDWR) < 0) return;
  }
}

namespace {

// gRPC's library makes an eventfd when it is initialised, which comes before
// main and before every constructor of the program. Only this comes earlier.
[[gnu::used, gnu::section(".preinit_array")]] void (*const kBeforeLibraries)() =
    OpenStandardStreams;

int CannotWrite(const char* program, const char* reason) {
  std::fprintf(stderr, "%s: cannot write to stdout: %s\n", program, reason);
  return 1;
}

}  // namespace

int FinishStdout(const char* program, int exit_code) {
  // The reason of an earlier failure is not known any more.
  const bool failed_before = std::ferror(stdout) != 0;
  if (std::fflush(stdout) != 0) {
    return CannotWrite(program, std::strerror(errno));
  }
  return failed_before ? CannotWrite(program, "a write failed") : exit_code;
}

int FinishStdout(const char* program, const std::string& text, int exit_code) {
  if (std::fputs(text.c_str(), stdout) < 0) {
    return CannotWrite(program, std::strerror(errno));
  }
  return FinishStdout(program, exit_code);
}

}  // namespace reprise
