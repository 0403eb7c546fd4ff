// One Generate call: a turn whose events are streamed to the client.
#ifndef SERVER_INFERENCE_SERVICE_GENERATE_H_
#define SERVER_INFERENCE_SERVICE_GENERATE_H_

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "proto/inference.pb.h"
#include "server/inference_service_context.h"
#include "server/inference_service_turn.h"

namespace reprise {

// One write is in flight at a time.
//
// A write may never end: the client answers pings, but does not read. While the
// turn runs, the scheduler's time-out looks after that. Once it has ended, the
// call does: it cuts itself off at once if a slow reader was the reason, and
// else if the rest was not read within slow_reader_timeout_ms.
class GenerateCall final
    : public grpc::ServerWriteReactor<v1::GenerateResponse>,
      public TurnCall {
 public:
  // Starts a call. `rpc` and `request` are gRPC's and live until it is done.
  static grpc::ServerWriteReactor<v1::GenerateResponse>* Start(
      ServiceContext& context, grpc::CallbackServerContext* rpc,
      const v1::GenerateRequest* request);

  GenerateCall(ServiceContext& context, grpc::CallbackServerContext* rpc,
               const v1::GenerateRequest* request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override { Cancelled(); }
  void OnDone() override { Left(); }

 private:
  absl::StatusOr<TurnRequest> MakeTurn() override;
  void OnEvents() override;
  void SendStatus(const grpc::Status& status) override { Finish(status); }
  // Takes waiting events and writes them, or finishes after the last.
  void Pump();
  // Puts what waits into `response_`, of deltas no more than the stream holds.
  // Whether there is something to write now.
  bool TakeEvents() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PutEvent(const StreamEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // On the delivery thread: once the stream is closed, sees to it that what is
  // left to be written ends.
  void LimitLastWrites();
  // Cancels the RPC, so that a write in flight fails and the call ends.
  void CutOff();

  // Constant after construction.
  const v1::GenerateRequest* const request_;
  const bool timings_;

  // Set once, on the delivery thread.
  grpc::Alarm last_writes_;

  v1::Started started_ ABSL_GUARDED_BY(mu_);
  // gRPC reads it while `writing_`.
  v1::GenerateResponse response_ ABSL_GUARDED_BY(mu_);
  std::optional<StreamEvent> next_ ABSL_GUARDED_BY(mu_);  // did not fit
  int64_t write_start_ns_ ABSL_GUARDED_BY(mu_) = 0;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;  // a write failed: only drain
  // The RPC is being cancelled; Finish, after which it may be gone, waits.
  bool cutting_ ABSL_GUARDED_BY(mu_) = false;
  bool limited_ ABSL_GUARDED_BY(mu_) = false;  // LimitLastWrites was here
};

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_GENERATE_H_
