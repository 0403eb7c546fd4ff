#include "engine/base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace reprise {

void OpenStandardStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    // Takes the lowest free number, which is `fd`: those below are open.
    // Without /dev/null there is nothing better to do than go on.
    if (open("/dev/null", O_RDWR) < 0) return;
  }
}

}  // namespace reprise
