#include "client/client_cancellation.h"

#include <grpcpp/grpcpp.h>

#include <chrono>

namespace reprise {

void Cancellation::Cancel() {
  MutexLock lock(mu_);
  cancelled_ = true;
  cancelled_changed_.NotifyAll();
  if (context_ != nullptr) context_->TryCancel();
}

bool Cancellation::cancelled() const {
  MutexLock lock(mu_);
  return cancelled_;
}

bool Cancellation::WaitFor(int64_t milliseconds) {
  using std::chrono::steady_clock;
  const auto end =
      steady_clock::now() + std::chrono::milliseconds(milliseconds);
  MutexLock lock(mu_);
  while (!cancelled_ && steady_clock::now() < end) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - steady_clock::now());
    cancelled_changed_.WaitFor(mu_, left.count());
  }
  return cancelled_;
}

CancellationScope::CancellationScope(Cancellation* cancellation,
                                     grpc::ClientContext& context)
    : cancellation_(cancellation) {
  if (cancellation_ == nullptr) return;
  MutexLock lock(cancellation_->mu_);
  cancellation_->context_ = &context;
  // gRPC remembers this until the call starts.
  if (cancellation_->cancelled_) context.TryCancel();
}

CancellationScope::~CancellationScope() {
  if (cancellation_ == nullptr) return;
  MutexLock lock(cancellation_->mu_);
  cancellation_->context_ = nullptr;
}

}  // namespace reprise
