#include "server/inference_service_turn.h"

#include <utility>
#include <variant>

#include "engine/base/log.h"
#include "server/inference_service_request.h"
#include "server/inference_service_rpc.h"
#include "server/metric_names.h"

namespace reprise {
namespace {

// Names are logged as they came, refused ones too, but no longer than any that
// is valid.
std::string_view Shortened(std::string_view name) {
  return name.substr(0, kMaxRequestIdBytes);
}

}  // namespace

TurnCall::TurnCall(ServiceContext& context, grpc::CallbackServerContext* rpc,
                   const TurnNames& names)
    : context_(context),
      rpc_(rpc),
      names_(names),
      arrival_ns_(context.clock.MonotonicNs()) {}

// ---- The beginning ----------------------------------------------------------

void TurnCall::Enter() {
  self_ = shared_from_this();
  const absl::Status entered = context_.calls.Enter(self_);
  if (!entered.ok()) return FinishOnce(entered);
  entered_ = true;
  context_.text.Run([call = self_] { call->Prepare(); });
}

void TurnCall::Prepare() {
  absl::StatusOr<TurnRequest> turn = MakeTurn();
  if (!turn.ok()) return FinishOnce(turn.status());
  turn->arrival_ns = arrival_ns_;
  const absl::Status submitted = Submit(*std::move(turn));
  if (!submitted.ok()) FinishOnce(submitted);
}

absl::Status TurnCall::Submit(TurnRequest request) {
  auto stream = std::make_shared<TokenStream>(context_.options.stream_buffer);
  // Weak: the stream is the call's, so holding the call would be a circle.
  stream->SetWakeup([weak = weak_from_this(), &context = context_] {
    if (std::shared_ptr<TurnCall> call = weak.lock()) {
      context.delivery.Run([call = std::move(call)] { call->OnEvents(); });
    }
  });
  std::optional<CancelCause> cancelled;
  {
    MutexLock lock(mu_);
    cancelled = cancelled_;
    if (!cancelled.has_value()) stream_ = stream;
  }
  if (!cancelled.has_value()) {
    return context_.scheduler.Submit(std::move(request), std::move(stream));
  }
  context_.metrics.CountCancellation(*cancelled);
  switch (*cancelled) {
    case CancelCause::kDeadline:
      return absl::DeadlineExceededError(
          "the deadline passed before the start");
    case CancelCause::kShutdown:
      return absl::UnavailableError("the server is shutting down");
    default:
      return absl::CancelledError("cancelled before the start");
  }
}

// ---- The end ----------------------------------------------------------------

void TurnCall::Cancel(CancelCause cause) {
  std::shared_ptr<TokenStream> stream;
  {
    MutexLock lock(mu_);
    if (!cancelled_.has_value()) cancelled_ = cause;
    stream = stream_;
  }
  if (stream != nullptr) stream->Cancel(cause);
}

void TurnCall::Cancelled() {
  Cancel(CauseOfCancel(*rpc_, SecondsSinceArrival()));
}

void TurnCall::Left() {
  if (entered_) context_.calls.Leave(this);
  self_.reset();  // tasks that still hold the call find it finished
}

void TurnCall::Note(const StreamEvent& event) {
  if (const auto* started = std::get_if<StartedEvent>(&event)) {
    usage_.prompt_tokens = started->prompt_tokens;
    usage_.cached_tokens = started->cached_tokens;
  } else if (const auto* delta = std::get_if<DeltaEvent>(&event)) {
    usage_ = delta->usage;
  } else if (const auto* finished = std::get_if<FinishedEvent>(&event)) {
    usage_ = finished->usage;
    if (finished->revision.has_value()) revision_ = finished->revision;
  }
}

void TurnCall::FinishOnce(const absl::Status& status) {
  {
    MutexLock lock(mu_);
    if (finished_) return;
    finished_ = true;
  }
  RecordAndFinish(status);
}

void TurnCall::RecordAndFinish(const absl::Status& status) {
  std::string_view reason;
  std::optional<uint64_t> revision;
  TokenUsage usage;
  {
    MutexLock lock(mu_);
    reason = finish_reason_;
    revision = revision_;
    usage = usage_;
  }
  const double seconds = SecondsSinceArrival();
  AddRetryDelay(status, *rpc_);
  context_.metrics.CountRequest(names_.method, status.code(), reason, seconds);
  LogDebug("turn ended", {{"method", names_.method},
                          {"request_id", Shortened(names_.request_id)},
                          {"session", Shortened(names_.session)},
                          {"revision", revision.value_or(0)},  // 0: none
                          {"prompt_tokens", usage.prompt_tokens},
                          {"cached_tokens", usage.cached_tokens},
                          {"completion_tokens", usage.completion_tokens},
                          {"finish_reason", reason},
                          {"code", CodeName(status.code())},
                          {"seconds", seconds}});
  SendStatus(ToGrpcStatus(status));
}

double TurnCall::SecondsSinceArrival() const {
  return static_cast<double>(context_.clock.MonotonicNs() - arrival_ns_) * 1e-9;
}

}  // namespace reprise
