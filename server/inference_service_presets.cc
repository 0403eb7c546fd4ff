// The calls about presets. A preset is a session of a tenant of its own
// (PresetKey), which no call but these can name.
#include <string>
#include <utility>

#include "engine/base/status_macros.h"
#include "server/inference_service.h"
#include "server/inference_service_request.h"
#include "server/inference_service_rpc.h"

namespace reprise {
namespace {

void FillPreset(const StoredSession& stored, v1::Preset& out) {
  out.set_name(stored.id);
  out.set_tokens(stored.tokens);
  out.set_snapshot_bytes(stored.snapshot_bytes);
  out.set_created_unix_ms(stored.created_unix_ms);
  out.set_from_session(stored.forked_from);
}

}  // namespace

grpc::ServerUnaryReactor* SessionsService::SavePreset(
    grpc::CallbackServerContext* rpc, const v1::SavePresetRequest* request,
    v1::Preset* response) {
  return RunUnary(
      context_, context_.executor, rpc, [=, this]() -> absl::Status {
        RETURN_IF_ERROR(ValidatePresetName(request->name(), "name"));
        RETURN_IF_ERROR(ValidateSessionId(request->session_id(), "session_id"));
        const absl::StatusOr<SessionInfo> made = context_.sessions.Fork(
            Key(request->session_id()),
            PresetKey(context_.options.tenant, request->name()),
            ExpectedRevisionOf(*request),
            /*ttl_ms=*/0);
        if (absl::IsAlreadyExists(made.status())) {
          return absl::AlreadyExistsError("name: there is a preset " +
                                          request->name() + " already");
        }
        RETURN_IF_ERROR(made.status());
        FillPreset(made->stored, *response);
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* SessionsService::DeletePreset(
    grpc::CallbackServerContext* rpc, const v1::DeletePresetRequest* request,
    v1::DeletePresetResponse*) {
  return RunUnary(
      context_, context_.executor, rpc, [=, this]() -> absl::Status {
        RETURN_IF_ERROR(ValidatePresetName(request->name(), "name"));
        const absl::Status status = context_.sessions.Delete(
            PresetKey(context_.options.tenant, request->name()));
        if (!absl::IsNotFound(status)) return status;
        return absl::NotFoundError("name: there is no preset " +
                                   request->name());
      });
}

grpc::ServerUnaryReactor* SessionsService::ListPresets(
    grpc::CallbackServerContext* rpc, const v1::ListPresetsRequest* request,
    v1::ListPresetsResponse* response) {
  return RunUnary(
      context_, context_.executor, rpc, [=, this]() -> absl::Status {
        ASSIGN_OR_RETURN(
            SessionPage page,
            ListPage(context_.sessions,
                     PresetKey(context_.options.tenant, /*name=*/"").tenant,
                     PageSizeOf(*request), request->page_token()));
        for (const SessionInfo& info : page.sessions) {
          FillPreset(info.stored, *response->add_presets());
        }
        response->set_next_page_token(std::move(page.next));
        return absl::OkStatus();
      });
}

}  // namespace reprise
