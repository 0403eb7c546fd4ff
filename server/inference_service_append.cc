#include "server/inference_service_append.h"

#include <memory>
#include <optional>
#include <variant>

#include "server/inference_service_request.h"
#include "server/inference_service_response.h"

namespace reprise {

grpc::ServerUnaryReactor* AppendCall::Start(ServiceContext& context,
                                            grpc::CallbackServerContext* rpc,
                                            const v1::AppendRequest* request,
                                            v1::AppendResponse* response) {
  auto call = std::make_shared<AppendCall>(context, rpc, request, response);
  call->Enter();
  return call.get();
}

AppendCall::AppendCall(ServiceContext& context,
                       grpc::CallbackServerContext* rpc,
                       const v1::AppendRequest* request,
                       v1::AppendResponse* response)
    : TurnCall(context, rpc,
               {.method = "Append",
                .request_id = request->request_id(),
                .session = request->session_id()}),
      request_(request),
      response_(response) {}

absl::StatusOr<TurnRequest> AppendCall::MakeTurn() {
  return ToTurnRequest(*request_, context_);
}

void AppendCall::OnEvents() {
  std::optional<absl::Status> status;
  {
    MutexLock lock(mu_);
    if (ended_ || finished_) return;
    while (std::optional<StreamEvent> event = stream_->Pop()) {
      Note(*event);
      const auto* started = std::get_if<StartedEvent>(&*event);
      if (started == nullptr) continue;
      response_->set_prompt_tokens(
          static_cast<uint32_t>(started->prompt_tokens));
      response_->set_cached_tokens(
          static_cast<uint64_t>(started->cached_tokens));
      response_->set_resumed_from(ToProto(started->resumed_from));
      response_->set_resume_reason(started->resume_reason);
      response_->set_repeated(started->repeated_seed.has_value());
    }
    status = stream_->FinalStatus();
    ended_ = status.has_value();
  }
  if (!status.has_value()) return;
  if (!status->ok()) return FinishOnce(*status);
  context_.executor.Run([this, held = shared_from_this()] { Answer(); });
}

// The turn is committed: whatever the look-up finds, that is the answer. The
// store may fail meanwhile, and others may change or delete the session.
void AppendCall::Answer() {
  const absl::StatusOr<SessionInfo> info = context_.sessions.Get(
      SessionKey{context_.options.tenant, request_->session_id()});
  {
    MutexLock lock(mu_);
    v1::Session& session = *response_->mutable_session();
    if (info.ok() && info->stored.revision == revision_) {
      Fill(*info, session);
      FillCheckpoints(info->stored, session);
    } else {
      session.set_id(request_->session_id());
      if (revision_.has_value()) session.set_revision(*revision_);
    }
  }
  FinishOnce(absl::OkStatus());
}

}  // namespace reprise
