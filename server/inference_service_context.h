// What the calls of the service share, and how many of them there are.
#ifndef SERVER_INFERENCE_SERVICE_CONTEXT_H_
#define SERVER_INFERENCE_SERVICE_CONTEXT_H_

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "engine/engine.h"
#include "engine/template/chat_format.h"
#include "engine/tokenizer.h"
#include "server/executor.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/scheduler.h"
#include "server/session_manager.h"
#include "server/token_stream.h"

namespace reprise {

// A call that lasts as long as its turn or its client does. Thread-safe.
class OpenCall {
 public:
  virtual ~OpenCall() = default;

  // The server is about to stop: the call need not wait long for its client.
  virtual void Hurry() = 0;
  // Asks for the call to end; the first cause stays.
  virtual void Cancel(CancelCause cause) = 0;
};

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

  // Likewise, of a call that BeginDrain and CancelAll reach until it leaves;
  // Unavailable while draining.
  absl::Status Enter(const std::shared_ptr<OpenCall>& call);
  void Leave(OpenCall* call);

  // No call that lasts enters any more, and those that are open hurry.
  void BeginDrain();
  void CancelAll(CancelCause cause);

 private:
  std::vector<std::shared_ptr<OpenCall>> Lasting() const;

  const int64_t limit_;
  Metrics& metrics_;
  mutable Mutex mu_;
  int64_t open_ ABSL_GUARDED_BY(mu_) = 0;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  std::unordered_map<OpenCall*, std::weak_ptr<OpenCall>> lasting_
      ABSL_GUARDED_BY(mu_);
};

// Borrowed: all must outlive the gRPC server, and the executors must have run
// all their tasks before the others go.
struct ServiceContext {
  Scheduler& scheduler;
  SessionManager& sessions;
  const Tokenizer& tokenizer;
  const ModelInfo& model;
  const ChatFormat& chat;
  Executor& executor;  // what waits for the store
  Executor& text;      // text to tokens and back
  Executor& delivery;  // one thread that starts writes to clients
  Metrics& metrics;
  const Clock& clock;
  const ServerOptions& options;
  // What can wait and what can run; more could only wait for no one's queue.
  OpenCalls calls{options.max_queued + options.max_running, metrics};
};

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_CONTEXT_H_
