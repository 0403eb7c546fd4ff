// What the calls of the service share, and how many of them there are.
#ifndef SERVER_INFERENCE_SERVICE_CONTEXT_H_
#define SERVER_INFERENCE_SERVICE_CONTEXT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "engine/engine.h"
#include "engine/tokenizer.h"
#include "server/executor.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/scheduler.h"
#include "server/session_manager.h"
#include "server/token_stream.h"

namespace reprise {

class TurnCall;

// The calls that are open. A limit on them bounds what waits for the executor,
// where no queue of the scheduler counts it yet. Thread-safe.
class OpenCalls {
 public:
  OpenCalls(int64_t limit, Metrics& metrics)
      : limit_(limit), metrics_(metrics) {}

  // ResourceExhausted, naming the limit, if it is reached. After an OK, Leave
  // when the call ends.
  absl::Status Enter();
  void Leave();
  int64_t open() const;

  // A call that CancelTurns reaches until it is removed.
  void AddTurn(const std::shared_ptr<TurnCall>& turn);
  void RemoveTurn(TurnCall* turn);
  void CancelTurns(CancelCause cause);

 private:
  const int64_t limit_;
  Metrics& metrics_;
  mutable Mutex mu_;
  int64_t open_ ABSL_GUARDED_BY(mu_) = 0;
  std::unordered_map<TurnCall*, std::weak_ptr<TurnCall>> turns_
      ABSL_GUARDED_BY(mu_);
};

// Borrowed: all must outlive the gRPC server, and the executors must have run
// all their tasks before the others go.
struct ServiceContext {
  Scheduler& scheduler;
  SessionManager& sessions;
  const Tokenizer& tokenizer;
  const ModelInfo& model;
  Executor& executor;  // what waits for the store
  Executor& text;      // text to tokens and back
  Executor& delivery;  // one thread that starts writes to clients
  Metrics& metrics;
  const Clock& clock;
  const ServerOptions& options;
  // What can wait and what can run; more could only wait for no one's queue.
  OpenCalls calls{options.max_queued + options.max_running, metrics};
};

// A turn on its way from a call to the scheduler and its events on the way
// back, whatever kind of call it is. Held by its call until OnDone, and by
// tasks that wait in a queue: those may outlive the call.
//
// Thread-safe.
class TurnCall : public std::enable_shared_from_this<TurnCall> {
 public:
  explicit TurnCall(ServiceContext& context) : context_(context) {}
  virtual ~TurnCall() = default;

  // Asks for the work to end; before Submit, refuses it. The first cause stays.
  void CancelTurn(CancelCause cause);

 protected:
  // Hands the request to the scheduler. Its errors; Cancelled or
  // DeadlineExceeded if CancelTurn came first. From then on OnEvents is called
  // on the delivery thread whenever there is something new in the stream.
  absl::Status Submit(TurnRequest request);
  virtual void OnEvents() = 0;
  // nullptr before Submit.
  std::shared_ptr<TokenStream> stream() const;

  ServiceContext& context_;

 private:
  mutable Mutex turn_mu_;
  // shared: with the scheduler
  std::shared_ptr<TokenStream> stream_ ABSL_GUARDED_BY(turn_mu_);
  std::optional<CancelCause> cancelled_ ABSL_GUARDED_BY(turn_mu_);
};

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_CONTEXT_H_
