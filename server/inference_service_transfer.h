// What Export and Import have in common: sealed bytes on their way between the
// server and a client, who may be slow or never come again.
#ifndef SERVER_INFERENCE_SERVICE_TRANSFER_H_
#define SERVER_INFERENCE_SERVICE_TRANSFER_H_

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "server/byte_budget.h"
#include "server/inference_service_context.h"

namespace reprise {

// A call that moves bytes in chunks, one at a time, so that the connection's
// flow control reaches the other end. It is counted among the open calls, and
// what it holds among --sealed-memory. It is cancelled if its client neither
// takes nor sends a chunk for --slow-reader-timeout, and after ten times as
// long whatever the client does. Keeps itself until it is done, and so do its
// tasks on the executor. One Finish is decided under `mu_`; after that the gRPC
// objects are not touched.
//
// Thread-safe.
class TransferCall : public OpenCall,
                     public std::enable_shared_from_this<TransferCall> {
 public:
  void Hurry() final;
  void Cancel(CancelCause cause) final;

 protected:
  TransferCall(ServiceContext& context, grpc::CallbackServerContext* rpc);

  // Whether the call is let in; if not, it has been finished.
  bool Enter();
  void Left();  // for the reactor's OnDone

  // From a read or write that was started to its end.
  void WaitForClient();
  void ClientCame();
  // Finishes the call unless that was decided already.
  void FinishOnce(const absl::Status& status);
  // The reactor's Finish.
  virtual void SendStatus(const grpc::Status& status) = 0;

  ServiceContext& context_;
  grpc::CallbackServerContext* const rpc_;
  // For the bytes that are held; used by one thread at a time.
  ByteBudget::Share share_;

 private:
  void SetAlarm(int64_t after_ms);
  void LookAtClient();

  const int64_t start_ns_;
  const int64_t most_ms_;               // of the whole call
  std::shared_ptr<TransferCall> self_;  // shared: until OnDone
  bool entered_ = false;

  Mutex mu_;
  int64_t limit_ms_ ABSL_GUARDED_BY(mu_);  // of waiting for the client
  // One more for each look; an alarm cannot be set again from within.
  std::vector<std::unique_ptr<grpc::Alarm>> alarms_ ABSL_GUARDED_BY(mu_);
  std::optional<int64_t> waiting_since_ns_ ABSL_GUARDED_BY(mu_);
  bool hurried_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  // The RPC is being cancelled; Finish, after which it may be gone, waits.
  bool cutting_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> late_ ABSL_GUARDED_BY(mu_);  // while cutting_
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_TRANSFER_H_
