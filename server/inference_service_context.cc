#include "server/inference_service_context.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

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

absl::Status OpenCalls::Enter(const std::shared_ptr<OpenCall>& call) {
  RETURN_IF_ERROR(Enter());
  {
    MutexLock lock(mu_);
    if (!draining_) {
      lasting_[call.get()] = call;
      return absl::OkStatus();
    }
    --open_;
  }
  metrics_.CountRejected(RejectReason::kDraining);
  return absl::UnavailableError("the server is shutting down");
}

void OpenCalls::Leave(OpenCall* call) {
  MutexLock lock(mu_);
  lasting_.erase(call);
  --open_;
}

std::vector<std::shared_ptr<OpenCall>> OpenCalls::Lasting() const {
  std::vector<std::shared_ptr<OpenCall>> calls;
  MutexLock lock(mu_);
  for (const auto& [key, call] : lasting_) {
    if (auto held = call.lock()) calls.push_back(std::move(held));
  }
  return calls;
}

void OpenCalls::BeginDrain() {
  {
    MutexLock lock(mu_);
    draining_ = true;
  }
  for (const auto& call : Lasting()) call->Hurry();
}

void OpenCalls::CancelAll(CancelCause cause) {
  for (const auto& call : Lasting()) call->Cancel(cause);
}

}  // namespace reprise
