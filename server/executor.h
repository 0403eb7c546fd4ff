// Where blocking work runs: reads and writes of the store, encoding, decoding.
// Neither gRPC's threads nor the scheduler's ever wait for a disk.
#ifndef SERVER_EXECUTOR_H_
#define SERVER_EXECUTOR_H_

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"

namespace reprise {

// Thread-safe. An interface, so that tests choose when and in which order
// tasks run.
class Executor {
 public:
  virtual ~Executor() = default;
  // Runs `task` once, later or now, on some thread. Never refuses.
  virtual void Run(std::function<void()> task) = 0;
};

// A fixed number of threads and one queue. The destructor runs what is queued,
// then joins; tasks may still add tasks until then.
class ThreadPool : public Executor {
 public:
  // Throws std::system_error if the system gives no more threads.
  explicit ThreadPool(int threads);
  ~ThreadPool() override;

  void Run(std::function<void()> task) override;

 private:
  void Work();
  void Stop();

  Mutex mu_;
  CondVar wake_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  int running_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;  // constant after construction
};

}  // namespace reprise

#endif  // SERVER_EXECUTOR_H_
