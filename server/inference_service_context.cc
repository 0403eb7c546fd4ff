#include "server/inference_service_context.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace reprise {

absl::Status OpenCalls::Enter() {
  {
    MutexLock lock(mu_);
    if (open_ < limit_) {
      ++open_;
      return absl::OkStatus();
    }
  }
  metrics_.CountRejected(RejectReason::kQueueFull);
  return absl::ResourceExhaustedError(
      absl::StrCat("the server has ", limit_,
                   " open calls already, its limit; try again later"));
}

void OpenCalls::Leave() {
  MutexLock lock(mu_);
  --open_;
}

int64_t OpenCalls::open() const {
  MutexLock lock(mu_);
  return open_;
}

void OpenCalls::AddTurn(const std::shared_ptr<TurnCall>& turn) {
  MutexLock lock(mu_);
  turns_[turn.get()] = turn;
}

void OpenCalls::RemoveTurn(TurnCall* turn) {
  MutexLock lock(mu_);
  turns_.erase(turn);
}

void OpenCalls::CancelTurns(CancelCause cause) {
  std::vector<std::shared_ptr<TurnCall>> turns;
  {
    MutexLock lock(mu_);
    for (const auto& [key, turn] : turns_) {
      if (auto held = turn.lock()) turns.push_back(std::move(held));
    }
  }
  for (const auto& turn : turns) turn->CancelTurn(cause);
}

void TurnCall::CancelTurn(CancelCause cause) {
  std::shared_ptr<TokenStream> stream;
  {
    MutexLock lock(turn_mu_);
    if (!cancelled_.has_value()) cancelled_ = cause;
    stream = stream_;
  }
  if (stream != nullptr) stream->Cancel(cause);
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
    MutexLock lock(turn_mu_);
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

std::shared_ptr<TokenStream> TurnCall::stream() const {
  MutexLock lock(turn_mu_);
  return stream_;
}

}  // namespace reprise
