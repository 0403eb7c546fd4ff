// One Generate call: a request on its way to the scheduler, and the events of
// its stream on their way to the client.
//
//   gRPC's thread      Start ----.                    OnWriteDone, OnCancel
//   text executor                Prepare: validate, tokenise, submit
//   delivery thread                        OnEvents: start the next write
#ifndef SERVER_INFERENCE_SERVICE_GENERATE_H_
#define SERVER_INFERENCE_SERVICE_GENERATE_H_

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "proto/inference.pb.h"
#include "server/inference_service_context.h"
#include "server/inference_service_rpc.h"

namespace reprise {

// Lives until OnDone, or until the last task that holds it has run. One write
// is in flight at a time, and one Finish is decided under `mu_`; after that the
// gRPC objects are not touched.
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
  void OnCancel() override;
  void OnDone() override;

 private:
  void Prepare();
  void OnEvents() override;
  // Takes waiting events and writes them, or finishes after the last.
  void Pump();
  // Puts what waits into `response_`, of deltas no more than the stream holds.
  // Whether there is something to write now.
  bool TakeEvents() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PutEvent(const StreamEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // On the delivery thread, when the stream is closed: sees to it that what
  // is left to be written ends.
  void LimitLastWrites(const TokenStream& events);
  // Cancels the RPC, so that a write in flight fails and the call ends.
  void CutOff();
  void FinishOnce(const absl::Status& status);
  double SecondsSinceArrival() const;
  void RecordAndFinish(const absl::Status& status);

  // Constant after Start.
  grpc::CallbackServerContext* const rpc_;
  const v1::GenerateRequest* const request_;
  const int64_t arrival_ns_;
  const bool timings_;
  std::shared_ptr<TurnCall> self_;  // shared: until OnDone; see above
  bool entered_ = false;            // counted among the open calls

  // Set once, on the delivery thread.
  grpc::Alarm last_writes_;

  Mutex mu_;
  v1::Started started_ ABSL_GUARDED_BY(mu_);
  // gRPC reads it while `writing_`.
  v1::GenerateResponse response_ ABSL_GUARDED_BY(mu_);
  std::optional<StreamEvent> next_ ABSL_GUARDED_BY(mu_);  // did not fit
  int64_t write_start_ns_ ABSL_GUARDED_BY(mu_) = 0;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;  // a write failed: only drain
  // The RPC is being cancelled; Finish, after which it may be gone, waits.
  bool cutting_ ABSL_GUARDED_BY(mu_) = false;
  bool limited_ ABSL_GUARDED_BY(mu_) = false;       // LimitLastWrites was here
  bool finished_ ABSL_GUARDED_BY(mu_) = false;      // Finish was decided
  std::string finish_reason_ ABSL_GUARDED_BY(mu_);  // of the first completion
};

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_GENERATE_H_
