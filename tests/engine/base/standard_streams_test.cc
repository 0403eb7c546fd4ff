#include "engine/base/standard_streams.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace reprise {
namespace {

bool IsDevNull(int fd) {
  struct stat null = {};
  struct stat open = {};
  return stat("/dev/null", &null) == 0 && fstat(fd, &open) == 0 &&
         open.st_rdev == null.st_rdev;
}

// In a child: the streams of the test itself are needed.
TEST(StandardStreamsTest, ClosedOnesBecomeDevNullAndOpenOnesStay) {
  for (int closed = 0; closed < 8; ++closed) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      int pipe_fds[2];
      if (pipe(pipe_fds) != 0) _exit(1);
      for (int fd = 0; fd <= 2; ++fd) {
        dup2(pipe_fds[1], fd);
        if ((closed & (1 << fd)) != 0) close(fd);
      }
      OpenStandardStreams();
      for (int fd = 0; fd <= 2; ++fd) {
        if (IsDevNull(fd) != ((closed & (1 << fd)) != 0)) _exit(2);
      }
      const bool can_write = write(1, "x", 1) == 1;
      if (can_write != ((closed & 2) == 0)) _exit(3);
      _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "closed: " << closed;
  }
}

}  // namespace
}  // namespace reprise
