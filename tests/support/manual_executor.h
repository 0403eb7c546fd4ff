// An executor whose tasks run when, and in the order that, a test says.
#ifndef TESTS_SUPPORT_MANUAL_EXECUTOR_H_
#define TESTS_SUPPORT_MANUAL_EXECUTOR_H_

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"
#include "server/executor.h"

namespace reprise {

// Thread-safe; tasks run on the thread that calls RunTask or RunAll.
class ManualExecutor : public Executor {
 public:
  void Run(std::function<void()> task) override {
    MutexLock lock(mu_);
    tasks_.push_back(std::move(task));
  }

  size_t waiting() const {
    MutexLock lock(mu_);
    return tasks_.size();
  }

  // Runs the `index`-th of the waiting tasks; false if there are not so many.
  bool RunTask(size_t index = 0) {
    std::function<void()> task;
    {
      MutexLock lock(mu_);
      if (index >= tasks_.size()) return false;
      task = std::move(tasks_[index]);
      tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(index));
    }
    task();
    return true;
  }

  // Runs tasks, oldest first, until there is none. Returns how many.
  int RunAll() {
    int count = 0;
    while (RunTask()) ++count;
    return count;
  }

  // Forgets those that wait, as when the process is killed.
  void DropAll() {
    MutexLock lock(mu_);
    tasks_.clear();
  }

 private:
  mutable Mutex mu_;
  std::vector<std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);
};

}  // namespace reprise

#endif  // TESTS_SUPPORT_MANUAL_EXECUTOR_H_
