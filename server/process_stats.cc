#include "server/process_stats.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

namespace reprise {
namespace {

// Unix time at which the machine started, from the line "btime N".
double BootTime() {
  std::ifstream in("/proc/stat");
  std::string word;
  double value = 0;
  while (in >> word) {
    if (word == "btime" && in >> value) return value;
  }
  return 0;
}

// Fields of /proc/self/stat, counted from 1 as proc(5) does. The name, field
// 2, is in parentheses and may hold blanks, so counting starts behind it.
void ReadStat(ProcessStats& stats) {
  constexpr int kThreads = 20, kStartTicks = 22, kVirtualBytes = 23,
                kResidentPages = 24;
  std::ifstream in("/proc/self/stat");
  std::string line;
  if (!std::getline(in, line)) return;
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos || name_end + 4 > line.size()) return;
  std::istringstream rest(line.substr(name_end + 4));  // ") S " skipped
  double value = 0;
  for (int field = 4; field <= kResidentPages && rest >> value; ++field) {
    if (field == kThreads) stats.threads = value;
    if (field == kStartTicks) {
      stats.start_time_unix_seconds =
          BootTime() + value / static_cast<double>(sysconf(_SC_CLK_TCK));
    }
    if (field == kVirtualBytes) stats.virtual_bytes = value;
    if (field == kResidentPages) {
      stats.resident_bytes = value * static_cast<double>(sysconf(_SC_PAGESIZE));
    }
  }
}

int64_t CountOpenFds() {
  std::error_code error;
  int64_t count = 0;
  std::filesystem::directory_iterator it("/proc/self/fd", error);
  for (; !error && it != std::filesystem::directory_iterator();
       it.increment(error)) {
    ++count;
  }
  return count > 0 ? count - 1 : 0;  // one is the directory itself
}

}  // namespace

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  ReadStat(stats);
  timespec cpu{};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) == 0) {
    stats.cpu_seconds = static_cast<double>(cpu.tv_sec) +
                        static_cast<double>(cpu.tv_nsec) * 1e-9;
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    stats.max_fds = static_cast<double>(limit.rlim_cur);
  }
  stats.open_fds = static_cast<double>(CountOpenFds());
  return stats;
}

}  // namespace reprise
