// A request inside the scheduler: what its completions share.
#ifndef SERVER_TURN_H_
#define SERVER_TURN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/sequence.h"
#include "server/session_manager.h"
#include "server/token_stream.h"
#include "server/turn_request.h"

namespace reprise {

struct Turn;

// What becomes of a completion's state.
struct KeptState {
  std::optional<uint64_t> revision;   // none if nothing was committed
  std::optional<SealedState> sealed;  // none if it was not asked for
};

// Both are used by the scheduler's thread, except where they say so.
struct Completion {
  Completion(Turn& turn, std::unique_ptr<Sequence> sequence)
      : turn(turn), sequence(std::move(sequence)) {}

  Turn& turn;  // that it belongs to
  const std::unique_ptr<Sequence> sequence;
  int64_t first_token_ns = 0;
  int64_t last_token_ns = 0;
  int64_t commit_start_ns = 0;
  // Written by a task on the executor while the completion is committing.
  absl::StatusOr<KeptState> kept = absl::UnknownError("not committed");

  // Whether how it ends is still open.
  bool live() const { return !sequence->ended() && !sequence->repairing(); }
};

struct Turn {
  Turn(TurnRequest request, std::shared_ptr<TokenStream> stream)
      : request(std::move(request)), stream(std::move(stream)) {}

  // Constant, but for the prompt while it is settled, and the snapshot.
  TurnRequest request;
  const std::shared_ptr<TokenStream> stream;  // shared: with the reader

  int64_t number = 0;  // in the order of coming; the queue's
  // The leases of all completions, from SessionManager. Written by a task on
  // the executor while the turn is acquiring.
  absl::StatusOr<std::vector<SessionLease>> leases =
      std::vector<SessionLease>();
  // Only the first until the prompt is read.
  std::vector<std::unique_ptr<Completion>> completions;
  int32_t unfinished = 0;  // completions without a Finished event

  StartedEvent started;  // moved from when it was pushed
  ResumeSource source = ResumeSource::kNone;
  uint64_t revision_before = 0;
  int64_t prefix_tokens = 0;  // of the prompt, from the prefix cache
  TokenUsage usage;
  TurnOutcome outcome;   // what was answered so far, if it is recorded
  absl::Status status;   // what the stream will be closed with
  absl::Status refusal;  // why it went back to the queue, if it did
  bool closed = false;   // its stream is; nothing is left to be done
  bool full = false;     // its stream is
  int64_t full_since_ns = 0;

  int64_t admitted_ns = 0;  // left the queue
  int64_t leased_ns = 0;
  int64_t prompt_read_ns = 0;
  int64_t resume_us = 0;
};

inline constexpr int64_t kNsPerMs = 1'000'000;

// Whether the request's time_limit_ms has passed.
bool TimeIsUp(const TurnRequest& request, int64_t now_ns);

// What the stream of a cancelled request is closed with.
absl::Status CancelledStatus(CancelCause cause, int64_t slow_reader_timeout_ms);

}  // namespace reprise

#endif  // SERVER_TURN_H_
