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
//
// What the stream of a request that was accepted gets, and what happens to its
// session:
//
//   it ends by            events                 status              session
//   ------------------    -------------------    ----------------    ---------
//   stop, length          Started .. Finished    OK                  committed
//   time_limit_ms         Started .. Finished    OK                  committed
//   cancelled             Started .. Finished    CANCELLED (client,  committed
//                                                disconnect),        if kept
//                                                DEADLINE_EXCEEDED,
//                                                RESOURCE_EXHAUSTED
//                                                (slow reader),
//                                                UNAVAILABLE
//   any of these before   none                   the same; a passed  unchanged
//   it had its slot                              time limit is
//                                                DEADLINE_EXCEEDED
//   queue time-out        none                   RESOURCE_EXHAUSTED  unchanged
//   Acquire's error       none                   that error          unchanged
//   SettlePrompt's error  none                   that error          unchanged
//   nothing to decode     none                   INVALID_ARGUMENT    unchanged
//   Commit's error        Started .. Deltas      that error          unchanged;
//                                                                    see below
//   request_id of the     Started, Delta,        OK                  unchanged
//   last turn             Finished, as recorded
//
// With `seal`, Finished has the state that the turn left, for the client,
// whether or not there is a session to commit it to: of every completion that
// would have been committed to one. If there is no room for it, the turn ends
// with RESOURCE_EXHAUSTED, and its session is unchanged.
//
// After a commit that failed with UNAVAILABLE the turn may be stored all the
// same (the store's answer was lost): the session is unchanged or one revision
// on, never in between. Read the session's revision before repeating.
//
// Committed is what was shown: Finished comes after the commit. A turn that
// ends before its whole prompt was read, or that added nothing, leaves the
// session unchanged, and so does every turn without `commit`.
//
// Tokens that end a turn (eos_tokens, stop_tokens) become the session's last
// token, as chat templates have it; they are in token_ids and logprobs, but
// their text is not shown. Of a stop string the session has what was shown of
// it: nothing, or all with include_stop. A stop string counts as soon as it is
// complete, the one that begins first, the longest of those; text of the tokens
// before min_new_tokens takes no part.
#ifndef SERVER_SCHEDULER_H_
#define SERVER_SCHEDULER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "engine/base/clock.h"
#include "engine/engine.h"
#include "engine/tokenizer.h"
#include "server/executor.h"
#include "server/metrics.h"
#include "server/session_manager.h"
#include "server/token_stream.h"
#include "server/turn_request.h"

namespace reprise {

struct SchedulerOptions {
  int64_t max_running = 64;             // sequences in steps at once
  int64_t prefill_rows = 256;           // prefill rows of a step, whole tiles
  int64_t max_queued = 1024;            // requests waiting
  int64_t max_queued_tokens = 1 << 20;  // their prompt tokens together
  int64_t queue_timeout_ms = 60'000;
  int64_t slow_reader_timeout_ms = 60'000;  // a full stream, then cancelled
  int64_t prefix_cache_bytes = 0;           // 0 = none
};

// Submit, BeginDrain, Stop and idle are for any thread.
class Scheduler {
 public:
  // All must outlive the scheduler, but when it is destroyed `executor` must
  // have run all its tasks and is not used any more. CHECKs that a step has
  // room for max_running rows and a tile.
  Scheduler(Engine& engine, const Tokenizer& tokenizer,
            SessionManager& sessions, Executor& executor, Metrics& metrics,
            const Clock& clock, const SchedulerOptions& options);
  // Closes what is left with Unavailable, sessions unchanged. Run must have
  // returned.
  ~Scheduler();

  // Queues a request; its answer goes to `stream`. ResourceExhausted if the
  // queue is full (requests or tokens), naming the limit; InvalidArgument if n
  // is more than can run at once; Unavailable while draining. On an error the
  // stream is not touched. Never blocks.
  absl::Status Submit(TurnRequest request, std::shared_ptr<TokenStream> stream);

  // One round: take in what came, plan, step, sample, deliver. Returns whether
  // there was anything to do. Called by Run, or by tests.
  bool RunOnce();

  // Runs rounds on the calling thread until Stop; sleeps while there is nothing
  // to do.
  void Run();
  void Stop();

  // Refuses new requests from now on; those that wait or run go on. Returns at
  // once.
  void BeginDrain();
  // Whether no request is waiting, running or committing.
  bool idle() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise

#endif  // SERVER_SCHEDULER_H_
