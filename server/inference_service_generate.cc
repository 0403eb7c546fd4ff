#include "server/inference_service_generate.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "server/client_states.h"
#include "server/inference_service_request.h"
#include "server/inference_service_response.h"

namespace reprise {
namespace {

// Deltas of one completion that waited together are sent as one.
bool Fits(const StreamEvent& event, const v1::GenerateResponse& message) {
  if (message.event_case() == v1::GenerateResponse::EVENT_NOT_SET) return true;
  const auto* delta = std::get_if<DeltaEvent>(&event);
  return delta != nullptr && message.has_delta() &&
         message.delta().index() == static_cast<uint32_t>(delta->index);
}

}  // namespace

GenerateCall::GenerateCall(ServiceContext& context,
                           grpc::CallbackServerContext* rpc,
                           const v1::GenerateRequest* request)
    : StreamCall(context, rpc,
                 {.method = "Generate",
                  .request_id = request->request_id(),
                  .session = request->session_id()}),
      request_(request),
      timings_(!request->output().has_timings() || request->output().timings()),
      share_(context.sessions.client_states().sealed_bytes()) {}

absl::StatusOr<TurnRequest> GenerateCall::MakeTurn() {
  const auto snapshot = static_cast<int64_t>(request_->snapshot().size());
  if (!share_.Add(2 * snapshot)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "snapshot: ", snapshot,
        " bytes, counted twice, with those of other calls, are more than may "
        "be on the way at once, ",
        context_.sessions.client_states().sealed_bytes().limit(),
        " (sealed_memory)"));
  }
  absl::StatusOr<TurnRequest> turn = ToTurnRequest(*request_, context_);
  if (turn.ok()) {
    MutexLock lock(mu_);
    started_ = StartedOf(*request_, *turn, context_.model);
  }
  return turn;
}

bool GenerateCall::PutEvent(StreamEvent& event, v1::GenerateResponse& message) {
  if (!Fits(event, message)) return false;
  if (const auto* started = std::get_if<StartedEvent>(&event)) {
    *message.mutable_started() = std::move(started_);
    Fill(*started, context_.tokenizer, *message.mutable_started());
  } else if (const auto* delta = std::get_if<DeltaEvent>(&event)) {
    Append(*delta, context_.tokenizer, *message.mutable_delta());
  } else if (auto* finished = std::get_if<FinishedEvent>(&event)) {
    if (finished->sealed.has_value()) {
      in_message_ = std::move(finished->sealed->share);
    }
    Fill(*finished, timings_, *message.mutable_finished());
    if (finished->index == 0) {
      finish_reason_ = FinishReasonName(finished->reason);
    }
  }
  return true;
}

}  // namespace reprise
