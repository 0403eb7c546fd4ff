// The Sessions service. The session manager does the work, on the executor.
#include <cstdint>
#include <string>
#include <utility>

#include "engine/base/status_macros.h"
#include "server/client_states.h"
#include "server/inference_service.h"
#include "server/inference_service_append.h"
#include "server/inference_service_export.h"
#include "server/inference_service_import.h"
#include "server/inference_service_request.h"
#include "server/inference_service_response.h"
#include "server/inference_service_rpc.h"

namespace reprise {
namespace {

// Fills the response of a call that answers with a session.
absl::Status Answer(const absl::StatusOr<SessionInfo>& info,
                    v1::Session& response) {
  if (!info.ok()) return info.status();
  Fill(*info, response);
  FillCheckpoints(info->stored, response);
  return absl::OkStatus();
}

}  // namespace

SessionKey SessionsService::Key(const std::string& id) const {
  return {context_.options.tenant, id};
}

grpc::ServerUnaryReactor* SessionsService::Create(
    grpc::CallbackServerContext* rpc, const v1::CreateSessionRequest* request,
    v1::Session* response) {
  return RunUnary(
      context_, context_.executor, rpc, [=, this]() -> absl::Status {
        const std::string id =
            request->has_id() ? request->id() : DrawSessionId();
        RETURN_IF_ERROR(ValidateSessionId(id, "id"));
        if (request->has_ttl_ms()) {
          RETURN_IF_ERROR(
              ValidateTtl(request->ttl_ms(), "ttl_ms", /*least=*/1));
        }
        const auto ttl_ms = static_cast<int64_t>(request->ttl_ms());
        if (!request->has_preset()) {
          return Answer(context_.sessions.CreateSession(Key(id), ttl_ms),
                        *response);
        }
        RETURN_IF_ERROR(ValidatePresetName(request->preset(), "preset"));
        const SessionKey preset =
            PresetKey(context_.options.tenant, request->preset());
        const absl::StatusOr<SessionInfo> made = context_.sessions.Fork(
            preset, Key(id), /*expected_revision=*/std::nullopt, ttl_ms);
        if (absl::IsNotFound(made.status())) {
          return absl::NotFoundError("preset: there is no " +
                                     request->preset());
        }
        return Answer(made, *response);
      });
}

grpc::ServerUnaryReactor* SessionsService::Get(
    grpc::CallbackServerContext* rpc, const v1::GetSessionRequest* request,
    v1::Session* response) {
  return RunUnary(
      context_, context_.executor, rpc, [=, this]() -> absl::Status {
        RETURN_IF_ERROR(ValidateSessionId(request->id(), "id"));
        return Answer(context_.sessions.Get(Key(request->id())), *response);
      });
}

grpc::ServerUnaryReactor* SessionsService::List(
    grpc::CallbackServerContext* rpc, const v1::ListSessionsRequest* request,
    v1::ListSessionsResponse* response) {
  return RunUnary(
      context_, context_.executor, rpc, [=, this]() -> absl::Status {
        ASSIGN_OR_RETURN(SessionPage page,
                         ListPage(context_.sessions, context_.options.tenant,
                                  PageSizeOf(*request), request->page_token()));
        for (const SessionInfo& info : page.sessions) {
          Fill(info, *response->add_sessions());
        }
        response->set_next_page_token(std::move(page.next));
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* SessionsService::Append(
    grpc::CallbackServerContext* rpc, const v1::AppendRequest* request,
    v1::AppendResponse* response) {
  return AppendCall::Start(context_, rpc, request, response);
}

grpc::ServerUnaryReactor* SessionsService::Suspend(
    grpc::CallbackServerContext* rpc, const v1::SuspendSessionRequest* request,
    v1::Session* response) {
  return RunUnary(
      context_, context_.executor, rpc, [=, this]() -> absl::Status {
        RETURN_IF_ERROR(ValidateSessionId(request->id(), "id"));
        return Answer(context_.sessions.Suspend(Key(request->id())), *response);
      });
}

grpc::ServerUnaryReactor* SessionsService::Resume(
    grpc::CallbackServerContext* rpc, const v1::ResumeSessionRequest* request,
    v1::ResumeSessionResponse* response) {
  return RunUnary(
      context_, context_.executor, rpc, [=, this]() -> absl::Status {
        RETURN_IF_ERROR(ValidateSessionId(request->id(), "id"));
        {
          // Given back unchanged, it stays in its slot.
          ASSIGN_OR_RETURN(
              const SessionLease lease,
              context_.sessions.Acquire(Key(request->id()),
                                        {.expected_revision = std::nullopt,
                                         .create = false,
                                         .commit = false}));
          response->set_resumed_from(ToProto(lease.source()));
          response->set_resume_us(static_cast<uint64_t>(lease.resume_us()));
        }
        return Answer(context_.sessions.Get(Key(request->id())),
                      *response->mutable_session());
      });
}

grpc::ServerUnaryReactor* SessionsService::Fork(
    grpc::CallbackServerContext* rpc, const v1::ForkSessionRequest* request,
    v1::Session* response) {
  return RunUnary(
      context_, context_.executor, rpc, [=, this]() -> absl::Status {
        RETURN_IF_ERROR(ValidateSessionId(request->id(), "id"));
        const std::string to =
            request->has_new_id() ? request->new_id() : DrawSessionId();
        RETURN_IF_ERROR(ValidateSessionId(to, "new_id"));
        return Answer(context_.sessions.Fork(Key(request->id()), Key(to),
                                             ExpectedRevisionOf(*request)),
                      *response);
      });
}

grpc::ServerUnaryReactor* SessionsService::Rewind(
    grpc::CallbackServerContext* rpc, const v1::RewindSessionRequest* request,
    v1::Session* response) {
  return RunUnary(
      context_, context_.executor, rpc, [=, this]() -> absl::Status {
        RETURN_IF_ERROR(ValidateSessionId(request->id(), "id"));
        return Answer(
            context_.sessions.Rewind(Key(request->id()), request->revision(),
                                     ExpectedRevisionOf(*request)),
            *response);
      });
}

grpc::ServerUnaryReactor* SessionsService::Delete(
    grpc::CallbackServerContext* rpc, const v1::DeleteSessionRequest* request,
    v1::DeleteSessionResponse*) {
  return RunUnary(context_, context_.executor, rpc,
                  [=, this]() -> absl::Status {
                    RETURN_IF_ERROR(ValidateSessionId(request->id(), "id"));
                    return context_.sessions.Delete(Key(request->id()));
                  });
}

grpc::ServerUnaryReactor* SessionsService::Touch(
    grpc::CallbackServerContext* rpc, const v1::TouchSessionRequest* request,
    v1::Session* response) {
  return RunUnary(
      context_, context_.executor, rpc, [=, this]() -> absl::Status {
        RETURN_IF_ERROR(ValidateSessionId(request->id(), "id"));
        std::optional<int64_t> ttl_ms;
        if (request->has_ttl_ms()) {
          RETURN_IF_ERROR(
              ValidateTtl(request->ttl_ms(), "ttl_ms", /*least=*/0));
          ttl_ms = static_cast<int64_t>(request->ttl_ms());
        }
        return Answer(context_.sessions.Touch(Key(request->id()), ttl_ms),
                      *response);
      });
}

// ---- Sealed bytes -----------------------------------------------------------

grpc::ServerWriteReactor<v1::SnapshotChunk>* SessionsService::Export(
    grpc::CallbackServerContext* rpc, const v1::ExportSessionRequest* request) {
  return ExportCall::Start(context_, rpc, request);
}

grpc::ServerReadReactor<v1::SnapshotChunk>* SessionsService::Import(
    grpc::CallbackServerContext* rpc, v1::Session* response) {
  return ImportCall::Start(context_, rpc, response);
}

}  // namespace reprise
