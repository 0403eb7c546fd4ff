// Holds a test's server still, and waits for it.
#ifndef TESTS_SUPPORT_STEP_GATE_H_
#define TESTS_SUPPORT_STEP_GATE_H_

#include <chrono>
#include <cstdint>
#include <thread>

#include "engine/base/mutex.h"

namespace reprise {

// Lets steps of an engine through: all of them, or a number at a time.
// Thread-safe.
class StepGate {
 public:
  // From now on only `steps` more.
  void Limit(int64_t steps) {
    MutexLock lock(mu_);
    limited_ = true;
    left_ = steps;
    changed_.NotifyAll();
  }
  void Open() {
    MutexLock lock(mu_);
    limited_ = false;
    changed_.NotifyAll();
  }
  // Waits until a step stands before the closed gate.
  void AwaitBlocked() {
    MutexLock lock(mu_);
    while (!blocked_) changed_.Wait(mu_);
  }
  // The engine's side.
  void Pass() {
    MutexLock lock(mu_);
    while (limited_ && left_ == 0) {
      blocked_ = true;
      changed_.NotifyAll();
      changed_.Wait(mu_);
    }
    blocked_ = false;
    if (limited_) --left_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool limited_ ABSL_GUARDED_BY(mu_) = false;
  bool blocked_ ABSL_GUARDED_BY(mu_) = false;
  int64_t left_ ABSL_GUARDED_BY(mu_) = 0;
};

// Whether `condition` comes true before a minute is over.
template <typename Condition>
bool Eventually(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace reprise

#endif  // TESTS_SUPPORT_STEP_GATE_H_
