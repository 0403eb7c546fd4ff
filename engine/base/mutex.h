// Mutex, MutexLock and CondVar: the standard library's, with the annotations
// that clang's thread-safety analysis checks.
//
// Not absl::Mutex: Debian's Abseil is built without ThreadSanitizer support,
// which then cannot see that a lock of it orders anything and reports a race
// at every use. The pthread calls below std::mutex it does see.
#ifndef ENGINE_BASE_MUTEX_H_
#define ENGINE_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/base/thread_annotations.h"

namespace reprise {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mu_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mu_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mu_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mu) ABSL_EXCLUSIVE_LOCK_FUNCTION(mu) : mu_(mu) {
    mu_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mu_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mu_;
};

// What waits are timed with. ThreadSanitizer of GCC 12 does not intercept
// pthread_cond_clockwait, which the steady clock uses; the system clock's waits
// change with the time of day.
#ifdef __SANITIZE_THREAD__
using WaitClock = std::chrono::system_clock;
#else
using WaitClock = std::chrono::steady_clock;
#endif

// Waits may wake up for no reason: call them in a loop around the condition.
class CondVar {
 public:
  void Wait(Mutex& mu) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    std::unique_lock<std::mutex> lock(mu.mu_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // Returns false if `timeout_ms` passed without a notification.
  bool WaitFor(Mutex& mu, int64_t timeout_ms)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    std::unique_lock<std::mutex> lock(mu.mu_, std::adopt_lock);
    const bool notified =
        cv_.wait_until(
            lock, WaitClock::now() + std::chrono::milliseconds(timeout_ms)) ==
        std::cv_status::no_timeout;
    lock.release();
    return notified;
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace reprise

#endif  // ENGINE_BASE_MUTEX_H_
