#include "server/engine_thread.h"

#include <chrono>
#include <utility>

#include "engine/base/parallel.h"

namespace reprise {

EngineThread::EngineThread(int threads, Loader load)
    : loaded_(loaded_promise_.get_future()) {
  thread_ = std::thread([this, threads, load = std::move(load)] {
    SetNumThreads(threads);
    loaded_promise_.set_value(load());
    const std::function<void()> work = work_.get_future().get();
    if (work) work();
  });
}

EngineThread::~EngineThread() { Join(); }

bool EngineThread::WaitFor(int64_t timeout_ms) {
  // wait_until on the system clock, for ThreadSanitizer: see CondVar.
  return loaded_.wait_until(std::chrono::system_clock::now() +
                            std::chrono::milliseconds(timeout_ms)) ==
         std::future_status::ready;
}

absl::StatusOr<std::unique_ptr<Engine>> EngineThread::Take() {
  return loaded_.get();
}

void EngineThread::Run(std::function<void()> work) {
  work_given_ = true;
  work_.set_value(std::move(work));
}

void EngineThread::Join() {
  if (!work_given_) Run(nullptr);
  if (thread_.joinable()) thread_.join();
}

}  // namespace reprise
