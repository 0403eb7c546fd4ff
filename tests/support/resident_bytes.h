// How much memory a process holds.
#ifndef TESTS_SUPPORT_RESIDENT_BYTES_H_
#define TESTS_SUPPORT_RESIDENT_BYTES_H_

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace reprise {

inline int64_t ResidentBytes(pid_t pid = getpid()) {
  std::ifstream statm("/proc/" + std::to_string(pid) + "/statm");
  int64_t total = 0;
  int64_t resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace reprise

#endif  // TESTS_SUPPORT_RESIDENT_BYTES_H_
