// One Append call: a turn that only reads, answered once it is committed.
#ifndef SERVER_INFERENCE_SERVICE_APPEND_H_
#define SERVER_INFERENCE_SERVICE_APPEND_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "proto/inference.pb.h"
#include "server/inference_service_context.h"
#include "server/inference_service_rpc.h"

namespace reprise {

// Lives as GenerateCall does. Finish is decided under `mu_`, once.
class AppendCall final : public grpc::ServerUnaryReactor, public TurnCall {
 public:
  // Starts a call. The pointers are gRPC's and live until it is done.
  static grpc::ServerUnaryReactor* Start(ServiceContext& context,
                                         grpc::CallbackServerContext* rpc,
                                         const v1::AppendRequest* request,
                                         v1::AppendResponse* response);

  AppendCall(ServiceContext& context, grpc::CallbackServerContext* rpc,
             const v1::AppendRequest* request, v1::AppendResponse* response);

  void OnCancel() override;
  void OnDone() override;

 private:
  void Prepare();
  void OnEvents() override;
  // On the executor: looks the session up for the answer.
  void Answer();
  void FinishOnce(const absl::Status& status);
  double SecondsSinceArrival() const;

  // Constant after Start.
  grpc::CallbackServerContext* const rpc_;
  const v1::AppendRequest* const request_;
  const int64_t arrival_ns_;
  std::shared_ptr<TurnCall> self_;  // shared: until OnDone
  bool entered_ = false;            // counted among the open calls

  Mutex mu_;
  v1::AppendResponse* const response_ ABSL_PT_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;     // the stream's status came
  bool finished_ ABSL_GUARDED_BY(mu_) = false;  // Finish was decided
};

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_APPEND_H_
