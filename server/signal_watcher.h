// SIGTERM, SIGINT and SIGHUP as events that a thread can wait for.
#ifndef SERVER_SIGNAL_WATCHER_H_
#define SERVER_SIGNAL_WATCHER_H_

#include <cstdint>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"

namespace reprise {

// The first signal asks the process to end; a second one ends it at once, with
// exit code 1 and nothing cleaned up. A thread of its own reads them, so no
// code of ours runs inside a signal handler.
//
// Thread-safe. Make one, on the main thread, before there are other threads:
// it blocks the signals, and threads inherit that.
class SignalWatcher {
 public:
  SignalWatcher();
  ~SignalWatcher();

  // Whether the first signal has come; waits for it up to `timeout_ms`.
  bool WaitFor(int64_t timeout_ms);
  // Blocks until it has come.
  void Wait();

 private:
  void Watch();

  int signal_fd_ = -1;
  int stop_fd_ = -1;  // readable when the thread is to end
  Mutex mu_;
  CondVar changed_;
  bool asked_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // constant after construction
};

}  // namespace reprise

#endif  // SERVER_SIGNAL_WATCHER_H_
