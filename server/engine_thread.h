// The thread that owns the engine: it loads the model and then runs the
// scheduler. Both must be the same thread, since OpenMP's team of workers
// belongs to the thread that started it, and a second team would fight over
// the cores.
#ifndef SERVER_ENGINE_THREAD_H_
#define SERVER_ENGINE_THREAD_H_

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "engine/engine.h"

namespace reprise {

// Used by one thread.
class EngineThread {
 public:
  using Loader = std::function<absl::StatusOr<std::unique_ptr<Engine>>()>;

  // Starts the thread, sets its team to `threads` and calls `load` there.
  EngineThread(int threads, Loader load);
  // Waits for the end of what Run was given.
  ~EngineThread();

  // Whether the loader has returned; waits for it up to `timeout_ms`.
  bool WaitFor(int64_t timeout_ms);
  // What the loader returned; ResourceExhausted if it ran out of memory. Call
  // it once; blocks until then.
  absl::StatusOr<std::unique_ptr<Engine>> Take();
  // Calls `work` on the thread, which ends after it. At most once; returns at
  // once.
  void Run(std::function<void()> work);

 private:
  std::promise<absl::StatusOr<std::unique_ptr<Engine>>> loaded_promise_;
  std::future<absl::StatusOr<std::unique_ptr<Engine>>> loaded_;
  std::promise<std::function<void()>> work_;
  bool work_given_ = false;
  std::thread thread_;
};

}  // namespace reprise

#endif  // SERVER_ENGINE_THREAD_H_
