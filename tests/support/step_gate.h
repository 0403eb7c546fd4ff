// Holds a test's server still.
#ifndef TESTS_SUPPORT_STEP_GATE_H_
#define TESTS_SUPPORT_STEP_GATE_H_

#include <cstdint>

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

}  // namespace reprise

#endif  // TESTS_SUPPORT_STEP_GATE_H_
