// Lets one thread sleep until another has something for it.
#ifndef SERVER_WAKER_H_
#define SERVER_WAKER_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"

namespace reprise {

// Thread-safe. A Wake before the Sleep is not lost: that Sleep returns at once.
class Waker {
 public:
  void Wake() {
    MutexLock lock(mu_);
    awake_ = true;
    changed_.NotifyAll();
  }

  // Sleeps until the next Wake, or at most `timeout_ms` if there is one.
  void Sleep(std::optional<int64_t> timeout_ms) {
    MutexLock lock(mu_);
    while (!awake_) {
      if (!timeout_ms.has_value()) {
        changed_.Wait(mu_);
      } else if (!changed_.WaitFor(mu_, *timeout_ms)) {
        break;
      }
    }
    awake_ = false;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool awake_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace reprise

#endif  // SERVER_WAKER_H_
