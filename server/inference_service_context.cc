#include "server/inference_service_context.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/inference_service_turn.h"

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

}  // namespace reprise
