#include "server/inference_service_stream.h"

#include <algorithm>
#include <chrono>
#include <variant>

namespace reprise {
namespace {

// What a client gets to read the rest when the server is shutting down: enough
// for one that reads, and no reason to wait for one that does not.
constexpr int64_t kShutdownWriteMs = 1000;

}  // namespace

template <typename Response>
void StreamCall<Response>::OnEvents() {
  Pump();
  LimitLastWrites();
}

template <typename Response>
void StreamCall<Response>::LimitLastWrites() {
  std::optional<CancelCause> cause;
  {
    MutexLock lock(mu_);
    if (!stream_->closed() || finished_ || limited_) return;
    limited_ = true;
    cause = stream_->cancelled();
  }
  if (cause == CancelCause::kSlowReader) return CutOff();
  int64_t limit_ms = context_.options.slow_reader_timeout_ms;
  if (cause == CancelCause::kShutdown) {
    limit_ms = std::min(limit_ms, kShutdownWriteMs);
  }
  // Weak: the alarm is the call's, and goes off early when it is destroyed.
  last_writes_.Set(
      std::chrono::system_clock::now() + std::chrono::milliseconds(limit_ms),
      [weak = weak_from_this()](bool time_is_up) {
        if (!time_is_up) return;
        if (const std::shared_ptr<TurnCall> call = weak.lock()) {
          static_cast<StreamCall&>(*call).CutOff();
        }
      });
}

template <typename Response>
void StreamCall<Response>::CutOff() {
  {
    MutexLock lock(mu_);
    if (finished_) return;
    cutting_ = true;
  }
  // Outside the lock: gRPC may call OnWriteDone and OnCancel from inside.
  rpc_->TryCancel();
  {
    MutexLock lock(mu_);
    cutting_ = false;
  }
  Pump();
}

template <typename Response>
void StreamCall<Response>::Pump() {
  std::optional<absl::Status> status;
  {
    MutexLock lock(mu_);
    if (writing_ || cutting_ || finished_) return;
    if (TakeEvents()) {
      writing_ = true;
      write_start_ns_ = context_.clock.MonotonicNs();
    } else {
      status = stream_->FinalStatus();
      if (!status.has_value()) return;
      finished_ = true;
    }
  }
  // Outside the lock. `this` is alive: OnDone cannot come while a write is in
  // flight or Finish was not called. And `response_` is ours while `writing_`.
  if (status.has_value()) return RecordAndFinish(*status);
  this->StartWrite(&response_);
}

template <typename Response>
bool StreamCall<Response>::TakeEvents() {
  response_.Clear();
  in_message_.Release();
  bool filled = false;
  // The scheduler refills the stream while this takes from it: without a limit
  // one message could take a whole turn, and the stream of a client that does
  // not read would never be full.
  int64_t deltas = 0;
  while (deltas < context_.options.stream_buffer) {
    if (!next_.has_value()) {
      next_ = stream_->Pop();
      if (!next_.has_value()) break;
      Note(*next_);
    }
    const bool delta = std::holds_alternative<DeltaEvent>(*next_);
    const bool whole = PutEvent(*next_, response_);
    if (whole) next_.reset();
    if (broken_) {
      response_.Clear();
      in_message_.Release();
      continue;
    }
    filled = true;
    if (!whole) break;
    deltas += delta ? 1 : 0;
  }
  return filled;
}

template <typename Response>
void StreamCall<Response>::OnWriteDone(bool ok) {
  // Held through Pump: once that has called Finish, OnDone may come at any
  // moment.
  const std::shared_ptr<TurnCall> hold = shared_from_this();
  int64_t stall_ns = 0;
  {
    MutexLock lock(mu_);
    writing_ = false;
    // The client is gone: OnCancel comes, too, and knows why.
    broken_ = broken_ || !ok;
    stall_ns = context_.clock.MonotonicNs() - write_start_ns_;
  }
  context_.metrics.ObserveSendStall(static_cast<double>(stall_ns) * 1e-9);
  Pump();
}

template class StreamCall<v1::GenerateResponse>;
template class StreamCall<v1::ScoreResponse>;

}  // namespace reprise
