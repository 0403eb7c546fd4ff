#include "server/engine_thread.h"

#include <chrono>
#include <new>
#include <utility>

#include "engine/base/mutex.h"
#include "engine/base/parallel.h"

namespace reprise {
namespace {

// The size of a model is not known before it is read.
absl::StatusOr<std::unique_ptr<Engine>> LoadInMemory(
    const EngineThread::Loader& load) {
  try {
    return load();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        "the model does not fit in this machine's memory");
  }
}

}  // namespace

EngineThread::EngineThread(int threads, Loader load)
    : loaded_(loaded_promise_.get_future()) {
  thread_ = std::thread([this, threads, load = std::move(load)] {
    SetNumThreads(threads);
    loaded_promise_.set_value(LoadInMemory(load));
    const std::function<void()> work = work_.get_future().get();
    if (work) work();
  });
}

EngineThread::~EngineThread() {
  if (!work_given_) Run(nullptr);
  thread_.join();
}

bool EngineThread::WaitFor(int64_t timeout_ms) {
  return loaded_.wait_until(WaitClock::now() +
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

}  // namespace reprise
