// What the kernel knows of this process, for the process_* metrics.
#ifndef SERVER_PROCESS_STATS_H_
#define SERVER_PROCESS_STATS_H_

namespace reprise {

// A figure that could not be read is 0.
struct ProcessStats {
  double cpu_seconds = 0;  // user and system, of all threads
  double resident_bytes = 0;
  double virtual_bytes = 0;
  double open_fds = 0;
  double max_fds = 0;
  double start_time_unix_seconds = 0;
  double threads = 0;
};

// Reads /proc/self. Thread-safe; blocks for some microseconds.
ProcessStats ReadProcessStats();

}  // namespace reprise

#endif  // SERVER_PROCESS_STATS_H_
