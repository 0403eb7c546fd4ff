#include "server/inference_service_generate.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <variant>

#include "server/inference_service_request.h"
#include "server/inference_service_response.h"

namespace reprise {
namespace {

// What a client gets to read the rest when the server is shutting down: enough
// for one that reads, and no reason to wait for one that does not.
constexpr int64_t kShutdownWriteMs = 1000;

}  // namespace

grpc::ServerWriteReactor<v1::GenerateResponse>* GenerateCall::Start(
    ServiceContext& context, grpc::CallbackServerContext* rpc,
    const v1::GenerateRequest* request) {
  auto call = std::make_shared<GenerateCall>(context, rpc, request);
  call->Enter();
  return call.get();
}

GenerateCall::GenerateCall(ServiceContext& context,
                           grpc::CallbackServerContext* rpc,
                           const v1::GenerateRequest* request)
    : TurnCall(context, rpc,
               {.method = "Generate",
                .request_id = request->request_id(),
                .session = request->session_id()}),
      request_(request),
      timings_(!request->output().has_timings() ||
               request->output().timings()) {}

absl::StatusOr<TurnRequest> GenerateCall::MakeTurn() {
  absl::StatusOr<TurnRequest> turn = ToTurnRequest(*request_, context_);
  if (turn.ok()) {
    MutexLock lock(mu_);
    started_ = StartedOf(*request_, *turn, context_.model);
  }
  return turn;
}

void GenerateCall::OnEvents() {
  Pump();
  LimitLastWrites();
}

void GenerateCall::LimitLastWrites() {
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
          static_cast<GenerateCall&>(*call).CutOff();
        }
      });
}

void GenerateCall::CutOff() {
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

void GenerateCall::Pump() {
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
  StartWrite(&response_);
}

bool GenerateCall::TakeEvents() {
  response_.Clear();
  // The scheduler refills the stream while this takes from it: without a limit
  // one message could take a whole turn, and the stream of a client that does
  // not read would never be full.
  int64_t deltas = 0;
  while (deltas < context_.options.stream_buffer) {
    std::optional<StreamEvent> event =
        next_.has_value() ? std::exchange(next_, std::nullopt) : stream_->Pop();
    if (!event.has_value()) break;
    const auto* delta = std::get_if<DeltaEvent>(&*event);
    const bool fits =
        response_.event_case() == v1::GenerateResponse::EVENT_NOT_SET ||
        (delta != nullptr && response_.has_delta() &&
         response_.delta().index() == static_cast<uint32_t>(delta->index));
    if (!fits) {
      next_ = std::move(event);
      break;
    }
    PutEvent(*event);
    if (delta != nullptr) ++deltas;
    if (broken_) {
      response_.Clear();
      deltas = 0;
    }
  }
  return response_.event_case() != v1::GenerateResponse::EVENT_NOT_SET;
}

void GenerateCall::PutEvent(const StreamEvent& event) {
  Note(event);
  if (const auto* started = std::get_if<StartedEvent>(&event)) {
    *response_.mutable_started() = std::move(started_);
    Fill(*started, context_.tokenizer, *response_.mutable_started());
  } else if (const auto* delta = std::get_if<DeltaEvent>(&event)) {
    Append(*delta, context_.tokenizer, *response_.mutable_delta());
  } else if (const auto* finished = std::get_if<FinishedEvent>(&event)) {
    Fill(*finished, timings_, *response_.mutable_finished());
    if (finished->index == 0) {
      finish_reason_ = FinishReasonName(finished->reason);
    }
  }
}

void GenerateCall::OnWriteDone(bool ok) {
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

}  // namespace reprise
