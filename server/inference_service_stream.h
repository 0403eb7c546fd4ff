// A turn whose events are streamed to the client. What is asked, and what the
// messages hold, is its subclasses' business.
#ifndef SERVER_INFERENCE_SERVICE_STREAM_H_
#define SERVER_INFERENCE_SERVICE_STREAM_H_

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "proto/inference.pb.h"
#include "server/byte_budget.h"
#include "server/inference_service_turn.h"

namespace reprise {

// One write is in flight at a time.
//
// A write may never end: the client answers pings, but does not read. While the
// turn runs, the scheduler's time-out looks after that. Once it has ended, the
// call does: it cuts itself off at once if a slow reader was the reason, and
// else if the rest was not read within slow_reader_timeout_ms.
template <typename Response>
class StreamCall : public grpc::ServerWriteReactor<Response>, public TurnCall {
 public:
  // Starts `call`, which keeps itself until it is done.
  static grpc::ServerWriteReactor<Response>* Start(
      const std::shared_ptr<StreamCall>& call) {
    call->Enter();
    return call.get();
  }

  void OnWriteDone(bool ok) final;
  void OnCancel() final { Cancelled(); }
  void OnDone() final { Left(); }

 protected:
  using TurnCall::TurnCall;

  // Moves to `message`, which may hold something already, what fits of `event`.
  // False if something is left: the call comes again with the next message. An
  // empty message takes at least a part.
  virtual bool PutEvent(StreamEvent& event, Response& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) = 0;

  // For the sealed bytes in the message that is written.
  ByteBudget::Share in_message_ ABSL_GUARDED_BY(mu_);

 private:
  void OnEvents() final;
  void SendStatus(const grpc::Status& status) final { this->Finish(status); }
  // Takes waiting events and writes them, or finishes after the last.
  void Pump();
  // Puts what waits into `response_`, of deltas no more than the stream holds.
  // Whether there is something to write now.
  bool TakeEvents() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // On the delivery thread: once the stream is closed, sees to it that what is
  // left to be written ends.
  void LimitLastWrites();
  // Cancels the RPC, so that a write in flight fails and the call ends.
  void CutOff();

  // Set once, on the delivery thread.
  grpc::Alarm last_writes_;

  // gRPC reads it while `writing_`.
  Response response_ ABSL_GUARDED_BY(mu_);
  // Popped, and not wholly put into a message yet.
  std::optional<StreamEvent> next_ ABSL_GUARDED_BY(mu_);
  int64_t write_start_ns_ ABSL_GUARDED_BY(mu_) = 0;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;  // a write failed: only drain
  // The RPC is being cancelled; Finish, after which it may be gone, waits.
  bool cutting_ ABSL_GUARDED_BY(mu_) = false;
  bool limited_ ABSL_GUARDED_BY(mu_) = false;  // LimitLastWrites was here
};

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_STREAM_H_
