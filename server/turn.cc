#include "server/turn.h"

#include <string>

namespace reprise {

bool TimeIsUp(const TurnRequest& request, int64_t now_ns) {
  return request.time_limit_ms.has_value() &&
         now_ns - request.arrival_ns >= *request.time_limit_ms * kNsPerMs;
}

absl::Status CancelledStatus(CancelCause cause,
                             int64_t slow_reader_timeout_ms) {
  switch (cause) {
    case CancelCause::kClient:
      return absl::CancelledError("cancelled by the client");
    case CancelCause::kDisconnect:
      return absl::CancelledError("the client went away");
    case CancelCause::kDeadline:
      return absl::DeadlineExceededError("the call's deadline passed");
    case CancelCause::kSlowReader:
      return absl::ResourceExhaustedError(
          "the answer was not read for " +
          std::to_string(slow_reader_timeout_ms) +
          " ms (slow_reader_timeout_ms)");
    case CancelCause::kShutdown:
      return absl::UnavailableError("the server is shutting down");
  }
  return absl::InternalError("cancelled for an unknown cause");
}

}  // namespace reprise
