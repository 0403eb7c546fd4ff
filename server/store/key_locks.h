// Locks with names: whoever works on one key does not keep others from theirs,
// and no mutex is held over the work. For the stores alone.
#ifndef SERVER_STORE_KEY_LOCKS_H_
#define SERVER_STORE_KEY_LOCKS_H_

#include <string>
#include <unordered_set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"

namespace reprise {

// Thread-safe.
class KeyLocks {
 public:
  // Waits until nobody else holds the key; gives it back when destroyed.
  // `locks` must outlive it.
  class Hold {
   public:
    Hold(KeyLocks& locks, std::string key)
        : locks_(locks), key_(std::move(key)) {
      MutexLock lock(locks_.mu_);
      while (!locks_.held_.insert(key_).second)
        locks_.given_back_.Wait(locks_.mu_);
    }
    ~Hold() {
      MutexLock lock(locks_.mu_);
      locks_.held_.erase(key_);
      locks_.given_back_.NotifyAll();
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    KeyLocks& locks_;
    const std::string key_;
  };

 private:
  Mutex mu_;
  CondVar given_back_;
  std::unordered_set<std::string> held_ ABSL_GUARDED_BY(mu_);
};

}  // namespace reprise

#endif  // SERVER_STORE_KEY_LOCKS_H_
