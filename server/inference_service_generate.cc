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
  call->self_ = call;
  const absl::Status entered = context.calls.Enter();
  if (entered.ok()) {
    call->entered_ = true;
    context.calls.AddTurn(call);
    context.text.Run([call] { call->Prepare(); });
  } else {
    call->FinishOnce(entered);
  }
  return call.get();
}

GenerateCall::GenerateCall(ServiceContext& context,
                           grpc::CallbackServerContext* rpc,
                           const v1::GenerateRequest* request)
    : TurnCall(context),
      rpc_(rpc),
      request_(request),
      arrival_ns_(context.clock.MonotonicNs()),
      timings_(!request->output().has_timings() ||
               request->output().timings()) {}

void GenerateCall::Prepare() {
  absl::StatusOr<TurnRequest> turn = ToTurnRequest(*request_, context_);
  if (!turn.ok()) return FinishOnce(turn.status());
  turn->arrival_ns = arrival_ns_;
  {
    MutexLock lock(mu_);
    started_ = StartedOf(*turn, context_.model);
  }
  const absl::Status submitted = Submit(*std::move(turn));
  if (!submitted.ok()) FinishOnce(submitted);
}

void GenerateCall::OnEvents() {
  Pump();
  const std::shared_ptr<TokenStream> events = stream();
  if (events->closed()) LimitLastWrites(*events);
}

void GenerateCall::LimitLastWrites(const TokenStream& events) {
  {
    MutexLock lock(mu_);
    if (finished_ || limited_) return;
    limited_ = true;
  }
  const std::optional<CancelCause> cause = events.cancelled();
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
  const std::shared_ptr<TokenStream> events = stream();
  std::optional<absl::Status> status;
  {
    MutexLock lock(mu_);
    if (writing_ || cutting_ || finished_) return;
    if (TakeEvents()) {
      writing_ = true;
      write_start_ns_ = context_.clock.MonotonicNs();
    } else {
      status = events->FinalStatus();
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
  const std::shared_ptr<TokenStream> events = stream();
  response_.Clear();
  // The scheduler refills the stream while this takes from it: without a limit
  // one message could take a whole turn, and the stream of a client that does
  // not read would never be full.
  int64_t deltas = 0;
  while (deltas < context_.options.stream_buffer) {
    std::optional<StreamEvent> event =
        next_.has_value() ? std::exchange(next_, std::nullopt) : events->Pop();
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

void GenerateCall::OnCancel() {
  CancelTurn(CauseOfCancel(*rpc_, SecondsSinceArrival()));
}

void GenerateCall::OnDone() {
  if (entered_) {
    context_.calls.RemoveTurn(this);
    context_.calls.Leave();
  }
  self_.reset();  // tasks that still hold the call find it finished
}

void GenerateCall::FinishOnce(const absl::Status& status) {
  {
    MutexLock lock(mu_);
    if (finished_) return;
    finished_ = true;
  }
  RecordAndFinish(status);
}

void GenerateCall::RecordAndFinish(const absl::Status& status) {
  std::string reason;
  {
    MutexLock lock(mu_);
    reason = finish_reason_;
  }
  AddRetryDelay(status, *rpc_);
  context_.metrics.CountRequest("Generate", status.code(), reason,
                                SecondsSinceArrival());
  Finish(ToGrpcStatus(status));
}

double GenerateCall::SecondsSinceArrival() const {
  return static_cast<double>(context_.clock.MonotonicNs() - arrival_ns_) * 1e-9;
}

}  // namespace reprise
