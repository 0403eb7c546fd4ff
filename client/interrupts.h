// Ctrl-C, turned from a signal into a cancelled call or a byte to poll for.
#ifndef CLIENT_INTERRUPTS_H_
#define CLIENT_INTERRUPTS_H_

#include <thread>

#include "absl/base/thread_annotations.h"
#include "client/client.h"
#include "engine/base/mutex.h"

namespace reprise {

constexpr int kInterruptedExitCode = 130;  // as a shell reports SIGINT

// What SIGINT does depends on what goes on:
//   a call is watched    it is cancelled; a second SIGINT ends the process
//   a prompt is watched  prompt_fd() becomes readable
//   neither              the process ends with kInterruptedExitCode
//
// Make one at the start of main, before any other thread exists: it blocks the
// signal for this thread and those it starts, and waits for it on one of its
// own. Watch functions are used by one thread.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Null: the call is over. `call` must live until then.
  void WatchCall(Cancellation* call);

  void WatchPrompt(bool watch);
  int prompt_fd() const { return prompt_fd_; }
  // Makes prompt_fd() unreadable again.
  void ClearPrompt();

 private:
  void Wait();
  void OnInterrupt();

  int signal_fd_ = -1;
  int prompt_fd_ = -1;
  int stop_fd_ = -1;
  Mutex mu_;
  Cancellation* call_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool prompt_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace reprise

#endif  // CLIENT_INTERRUPTS_H_
