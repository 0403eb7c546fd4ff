#include "server/inference_service_append.h"

#include <optional>
#include <utility>
#include <variant>

#include "server/inference_service_request.h"
#include "server/inference_service_response.h"

namespace reprise {

grpc::ServerUnaryReactor* AppendCall::Start(ServiceContext& context,
                                            grpc::CallbackServerContext* rpc,
                                            const v1::AppendRequest* request,
                                            v1::AppendResponse* response) {
  auto call = std::make_shared<AppendCall>(context, rpc, request, response);
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

AppendCall::AppendCall(ServiceContext& context,
                       grpc::CallbackServerContext* rpc,
                       const v1::AppendRequest* request,
                       v1::AppendResponse* response)
    : TurnCall(context),
      rpc_(rpc),
      request_(request),
      arrival_ns_(context.clock.MonotonicNs()),
      response_(response) {}

void AppendCall::Prepare() {
  absl::StatusOr<TurnRequest> turn = ToTurnRequest(*request_, context_);
  if (!turn.ok()) return FinishOnce(turn.status());
  turn->arrival_ns = arrival_ns_;
  const absl::Status submitted = Submit(*std::move(turn));
  if (!submitted.ok()) FinishOnce(submitted);
}

void AppendCall::OnEvents() {
  const std::shared_ptr<TokenStream> events = stream();
  std::optional<absl::Status> status;
  {
    MutexLock lock(mu_);
    if (ended_ || finished_) return;
    while (std::optional<StreamEvent> event = events->Pop()) {
      const auto* started = std::get_if<StartedEvent>(&*event);
      if (started == nullptr) continue;
      response_->set_prompt_tokens(
          static_cast<uint32_t>(started->prompt_tokens));
      response_->set_cached_tokens(
          static_cast<uint64_t>(started->cached_tokens));
      response_->set_resumed_from(ToProto(started->resumed_from));
      response_->set_resume_reason(started->resume_reason);
    }
    status = events->FinalStatus();
    ended_ = status.has_value();
  }
  if (!status.has_value()) return;
  if (!status->ok()) return FinishOnce(*status);
  // Held by the call itself, which is not done before Finish.
  context_.executor.Run([this] { Answer(); });
}

void AppendCall::Answer() {
  const absl::StatusOr<SessionInfo> info = context_.sessions.Get(
      SessionKey{context_.options.tenant, request_->session_id()});
  if (!info.ok()) return FinishOnce(info.status());
  {
    MutexLock lock(mu_);
    Fill(*info, *response_->mutable_session());
  }
  FinishOnce(absl::OkStatus());
}

void AppendCall::OnCancel() {
  CancelTurn(CauseOfCancel(*rpc_, SecondsSinceArrival()));
}

void AppendCall::OnDone() {
  if (entered_) {
    context_.calls.RemoveTurn(this);
    context_.calls.Leave();
  }
  self_.reset();
}

void AppendCall::FinishOnce(const absl::Status& status) {
  {
    MutexLock lock(mu_);
    if (finished_) return;
    finished_ = true;
  }
  AddRetryDelay(status, *rpc_);
  context_.metrics.CountRequest("Append", status.code(), "",
                                SecondsSinceArrival());
  Finish(ToGrpcStatus(status));
}

double AppendCall::SecondsSinceArrival() const {
  return static_cast<double>(context_.clock.MonotonicNs() - arrival_ns_) * 1e-9;
}

}  // namespace reprise
