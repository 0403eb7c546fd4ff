#include "server/inference_service_transfer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "server/client_states.h"
#include "server/inference_service_rpc.h"

namespace reprise {
namespace {

constexpr int64_t kNsInMs = 1'000'000;
// A client that sends or takes a little now and then holds a call and memory:
// time limits of one wait that all waits together may take. With the default
// of a minute, 100 MB get through at 170 KB/s.
constexpr int64_t kLimitsOfCall = 10;
// What one wait may take when the server is shutting down.
constexpr int64_t kShutdownWaitMs = 1000;

}  // namespace

TransferCall::TransferCall(ServiceContext& context,
                           grpc::CallbackServerContext* rpc)
    : context_(context),
      rpc_(rpc),
      share_(context.sessions.client_states().sealed_bytes()),
      start_ns_(context.clock.MonotonicNs()),
      most_ms_(kLimitsOfCall * context.options.slow_reader_timeout_ms),
      limit_ms_(context.options.slow_reader_timeout_ms) {}

bool TransferCall::Enter() {
  self_ = shared_from_this();
  const absl::Status entered = context_.calls.Enter(self_);
  if (!entered.ok()) {
    FinishOnce(entered);
    return false;
  }
  entered_ = true;
  SetAlarm(context_.options.slow_reader_timeout_ms);
  return true;
}

// An alarm that still holds the call finds it finished; nothing of the context
// is used then.
void TransferCall::Left() {
  if (entered_) context_.calls.Leave(this);
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
  const int64_t now_ns = context_.clock.MonotonicNs();
  int64_t left_ms = most_ms_ - (now_ns - start_ns_) / kNsInMs;
  bool hurried = false;
  {
    MutexLock lock(mu_);
    if (finished_) return;
    hurried = hurried_;
    int64_t waited_ms = 0;
    if (waiting_since_ns_.has_value()) {
      waited_ms = (now_ns - *waiting_since_ns_) / kNsInMs;
    }
    left_ms = std::min(left_ms, limit_ms_ - waited_ms);
  }
  if (left_ms > 0) return SetAlarm(left_ms);
  Cancel(hurried ? CancelCause::kShutdown : CancelCause::kSlowReader);
}

void TransferCall::Hurry() {
  {
    MutexLock lock(mu_);
    hurried_ = true;
    limit_ms_ = std::min(limit_ms_, kShutdownWaitMs);
  }
  LookAtClient();
}

// The read or write that waits fails then, and the call is finished there; if
// none waits, what works on the call finishes it.
void TransferCall::Cancel(CancelCause cause) {
  {
    MutexLock lock(mu_);
    if (finished_ || std::exchange(cancelled_, true)) return;
    cutting_ = true;
  }
  context_.metrics.CountCancellation(cause);
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
