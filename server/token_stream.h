// One request's answer on its way from the scheduler to whoever asked: a small
// bounded buffer of events, with plain structs so that no protobuf goes below
// the service.
//
// The scheduler pushes; when full() it leaves the request out of its steps, so
// a slow reader pauses itself and nobody else. The reader pops, and says when
// it wants no more. Order: Started, Deltas, one Finished for each of the n
// completions, and last the status, once.
#ifndef SERVER_TOKEN_STREAM_H_
#define SERVER_TOKEN_STREAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "engine/sampler.h"
#include "server/metrics.h"
#include "server/seal.h"

namespace reprise {

struct TokenUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;  // of all completions together
};

struct StartedEvent {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  ResumeSource resumed_from = ResumeSource::kNone;
  std::string resume_reason;
  uint64_t revision = 0;  // before this turn; 0 if stateless
  // Of a turn that was carried out before and is only told again: its seed.
  std::optional<uint64_t> repeated_seed;
  std::vector<SampledToken> prompt_logprobs;
};

struct DeltaEvent {
  int32_t index = 0;
  std::string text;
  std::vector<int32_t> token_ids;
  // Empty unless asked for. Of the tokens generated, or, before those, of the
  // prompt's (PromptLogprobs::kStreamed).
  std::vector<SampledToken> logprobs;
  TokenUsage usage;
};

struct RequestTimings {
  int64_t queue_us = 0;
  int64_t resume_us = 0;
  int64_t prefill_us = 0;
  int64_t first_token_us = 0;
  int64_t per_token_us = 0;
  int64_t commit_us = 0;
  int64_t total_us = 0;
};

struct FinishedEvent {
  int32_t index = 0;
  FinishReason reason = FinishReason::kStop;
  std::string matched_stop;
  std::optional<int32_t> matched_token;
  TokenUsage usage;
  RequestTimings timings;
  std::optional<uint64_t> revision;   // none if nothing was committed
  std::optional<SealedState> sealed;  // the state, if it was asked for
};

using StreamEvent = std::variant<StartedEvent, DeltaEvent, FinishedEvent>;

// Thread-safe. Shared by the scheduler and the reader; whoever is last
// destroys it.
class TokenStream {
 public:
  // At most `max_deltas` deltas wait, and one more for each completion, since
  // the scheduler looks at full() once a step; Started and Finished always fit.
  explicit TokenStream(int64_t max_deltas = 32) : max_deltas_(max_deltas) {}

  // -- the scheduler --
  void Push(StreamEvent event);
  // The end. The status is what the call returns. Later calls, of Push too, do
  // nothing.
  void Close(absl::Status status);
  bool full() const;
  // Called, from the thread that popped or cancelled, when a full stream has
  // room again and at the first Cancel. May be called once more after it was
  // set to another one. Must be quick.
  void SetReaderWakeup(std::function<void()> wakeup);

  // -- the reader --
  // Called, from the thread that pushed and under no lock, each time an event
  // comes to an empty buffer, and at the end. Must be quick. Set it before the
  // request is submitted; what it holds lives until the call has returned.
  void SetWakeup(std::function<void()> wakeup);
  // The next event, if there is one.
  std::optional<StreamEvent> Pop();
  // The final status once it is there and every event was popped.
  std::optional<absl::Status> FinalStatus() const;
  // Whether the end is there; events may still wait to be popped.
  bool closed() const;

  // -- both --
  // Asks for the work to end; the first cause stays. The scheduler sees it
  // within a step.
  void Cancel(CancelCause cause);
  std::optional<CancelCause> cancelled() const;

 private:
  const int64_t max_deltas_;
  mutable Mutex mu_;
  std::deque<StreamEvent> events_ ABSL_GUARDED_BY(mu_);
  int64_t deltas_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<absl::Status> final_ ABSL_GUARDED_BY(mu_);
  std::optional<CancelCause> cancelled_ ABSL_GUARDED_BY(mu_);
  std::function<void()> wakeup_ ABSL_GUARDED_BY(mu_);         // of the reader
  std::function<void()> reader_wakeup_ ABSL_GUARDED_BY(mu_);  // by the reader
};

}  // namespace reprise

#endif  // SERVER_TOKEN_STREAM_H_
