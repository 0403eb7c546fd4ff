// Ends a call, or a wait between two, from another thread.
#ifndef CLIENT_CLIENT_CANCELLATION_H_
#define CLIENT_CLIENT_CANCELLATION_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"

namespace grpc {
class ClientContext;
}

namespace reprise {

// Thread-safe. Serves one call at a time; once cancelled, it stays so and the
// next calls with it end at once.
class Cancellation {
 public:
  void Cancel();
  bool cancelled() const;
  // Waits for so long, or until it is cancelled. Returns cancelled().
  bool WaitFor(int64_t milliseconds);

 private:
  friend class CancellationScope;
  mutable Mutex mu_;
  CondVar cancelled_changed_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  // The running call, if there is one.
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mu_) = nullptr;
};

// Ties a cancellation, or none, to a call for as long as the scope lives.
class CancellationScope {
 public:
  CancellationScope(Cancellation* cancellation, grpc::ClientContext& context);
  ~CancellationScope();
  CancellationScope(const CancellationScope&) = delete;
  CancellationScope& operator=(const CancellationScope&) = delete;

 private:
  Cancellation* const cancellation_;
};

}  // namespace reprise

#endif  // CLIENT_CLIENT_CANCELLATION_H_
