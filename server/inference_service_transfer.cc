#include "server/inference_service_transfer.h"

#include <chrono>
#include <utility>

#include "server/inference_service_rpc.h"

namespace reprise {
namespace {

constexpr int64_t kNsInMs = 1'000'000;

}  // namespace

TransferCall::TransferCall(ServiceContext& context,
                           grpc::CallbackServerContext* rpc)
    : context_(context),
      rpc_(rpc),
      share_(context.sealed_bytes),
      limit_ms_(context.options.slow_reader_timeout_ms) {}

bool TransferCall::Enter() {
  self_ = shared_from_this();
  const absl::Status entered = context_.calls.Enter();
  if (!entered.ok()) {
    FinishOnce(entered);
    return false;
  }
  entered_ = true;
  SetAlarm(limit_ms_);
  return true;
}

// An alarm that still holds the call finds it finished; nothing of the context
// is used then.
void TransferCall::Left() {
  if (entered_) context_.calls.Leave();
  self_.reset();
}

// ---- Slow clients -----------------------------------------------------------

void TransferCall::SetAlarm(int64_t after_ms) {
  MutexLock lock(mu_);
  if (finished_) return;
  alarms_.push_back(std::make_unique<grpc::Alarm>());
  // Weak: the alarms are the call's, and go off early when they are destroyed.
  alarms_.back()->Set(
      std::chrono::system_clock::now() + std::chrono::milliseconds(after_ms),
      [weak = weak_from_this()](bool time_is_up) {
        if (!time_is_up) return;
        if (const auto call = weak.lock()) call->LookAtClient();
      });
}

void TransferCall::WaitForClient() {
  MutexLock lock(mu_);
  waiting_since_ns_ = context_.clock.MonotonicNs();
}

void TransferCall::ClientCame() {
  MutexLock lock(mu_);
  waiting_since_ns_.reset();
}

void TransferCall::LookAtClient() {
  int64_t waited_ms = 0;
  {
    MutexLock lock(mu_);
    if (finished_) return;
    if (waiting_since_ns_.has_value()) {
      waited_ms = (context_.clock.MonotonicNs() - *waiting_since_ns_) / kNsInMs;
    }
  }
  if (waited_ms >= limit_ms_) return CutOff();
  SetAlarm(limit_ms_ - waited_ms);
}

// The read or write that waits fails then, and the call is finished there.
void TransferCall::CutOff() {
  {
    MutexLock lock(mu_);
    if (finished_) return;
    cutting_ = true;
  }
  context_.metrics.CountCancellation(CancelCause::kSlowReader);
  // Outside the lock: gRPC may call OnReadDone and the like from inside.
  rpc_->TryCancel();
  std::optional<absl::Status> status;
  {
    MutexLock lock(mu_);
    cutting_ = false;
    status = std::exchange(late_, std::nullopt);
  }
  if (status.has_value()) FinishOnce(*status);
}

// ---- The end ----------------------------------------------------------------

void TransferCall::FinishOnce(const absl::Status& status) {
  {
    MutexLock lock(mu_);
    if (finished_) return;
    if (cutting_) {
      if (!late_.has_value()) late_ = status;
      return;
    }
    finished_ = true;
  }
  // First, so that whoever hears the end finds room for the next.
  share_.Release();
  AddRetryDelay(status, *rpc_);
  SendStatus(ToGrpcStatus(status));
}

}  // namespace reprise
