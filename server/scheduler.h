// Continuous batching: decides which rows make the next step, runs it, and
// moves every request on. One thread owns the engine.
//
// Life of a request:
//
//   waiting --> acquiring --> prefill --> decode --> committing --> done
//               (executor)                           (executor)
//
//  * prefill: all tokens but the last, in whole tiles of kTileRows counted from
//    the first, a last partial tile in one piece. What is left is the session's
//    pending token, so the session's invariant holds again before decoding.
//  * decode: one row a step, the pending token; its logits give the next one.
//  * a stop string that matched inside a token goes back to the state from
//    before the match and prefills the text that remains ("repair").
//
// Results do not depend on batch mates or load: tiles are never cut elsewhere.
#ifndef SERVER_SCHEDULER_H_
#define SERVER_SCHEDULER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "engine/tokenizer.h"
#include "server/executor.h"
#include "server/metrics.h"
#include "server/session_manager.h"
#include "server/token_stream.h"

namespace reprise {

// One turn or stateless completion, validated by the service.
struct TurnRequest {
  std::string request_id;
  std::string tenant;
  std::optional<SessionKey> session;  // none = stateless
  SessionManager::AcquireOptions acquire;
  std::vector<int32_t> prompt;  // may be empty if the session has a token
  SamplingParams sampling;
  int64_t max_new_tokens = 16;  // 0 = append only: prefill, then commit
  int64_t min_new_tokens = 0;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_tokens;
  std::vector<int32_t> eos_tokens;  // empty if they are to be ignored
  bool include_stop = false;
  std::optional<int64_t> time_limit_ms;
  bool commit = true;          // sessions only
  bool keep_on_cancel = true;  // sessions only
  int32_t n = 1;               // more than 1 only without commit
  bool want_text = true;
  bool want_token_ids = false;
  std::optional<int32_t> logprobs;  // alternatives; none = no log-probabilities
  bool prompt_logprobs = false;
  int64_t arrival_ns = 0;  // Clock::MonotonicNs when the call came in
};

struct SchedulerOptions {
  int64_t max_running = 64;             // sequences in steps at once
  int64_t prefill_rows = 256;           // prefill rows of a step, whole tiles
  int64_t max_queued = 1024;            // requests waiting
  int64_t max_queued_tokens = 1 << 20;  // their prompt tokens together
  int64_t queue_timeout_ms = 60'000;
  int64_t slow_reader_timeout_ms = 60'000;  // a full stream, then cancelled
};

// What the planner knows of a sequence.
struct PlannableSequence {
  int64_t prefill_tokens = 0;  // still to be prefilled; 0 = decoding
  bool paused = false;         // its stream is full
};

// Rows of one sequence in the next step.
struct PlannedSegment {
  int64_t sequence = 0;  // index
  int64_t rows = 0;
};

// Writes the next step to `plan`: one row for every decoding sequence that is
// not paused, then prefill rows, first come first served, in whole tiles (or a
// last partial one) up to `prefill_rows` in all; at least one tile if any
// sequence prefills and `max_rows` leaves room for it. Depends on nothing else.
void PlanStep(std::span<const PlannableSequence> sequences,
              int64_t prefill_rows, int64_t max_rows,
              std::vector<PlannedSegment>& plan);

// Submit, Drain and the counts are thread-safe.
class Scheduler {
 public:
  // All must outlive the scheduler. `executor` must have run all its tasks
  // when the scheduler is destroyed.
  Scheduler(Engine& engine, const Tokenizer& tokenizer,
            SessionManager& sessions, Executor& executor, Metrics& metrics,
            const Clock& clock, const SchedulerOptions& options);
  ~Scheduler();  // stops the thread, if there is one; cancels what is left

  // Queues a request; its answer goes to `stream`. ResourceExhausted if the
  // queue is full (requests or tokens), naming the limit; Unavailable while
  // draining. Never blocks.
  absl::Status Submit(TurnRequest request, std::shared_ptr<TokenStream> stream);

  // One round: take in what came, plan, step, sample, deliver. Returns whether
  // there was anything to do. Called by the thread of Start, or by tests.
  bool RunOnce();

  // Runs rounds on the calling thread until Stop; sleeps while there is nothing
  // to do.
  void Run();
  void Stop();

  // Refuses new requests from now on; running ones go on. Returns at once.
  void BeginDrain();
  // Whether no request is waiting, running or committing.
  bool idle() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise

#endif  // SERVER_SCHEDULER_H_
