// One Append call: a turn that only reads, answered once it is committed.
#ifndef SERVER_INFERENCE_SERVICE_APPEND_H_
#define SERVER_INFERENCE_SERVICE_APPEND_H_

#include <grpcpp/grpcpp.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "proto/inference.pb.h"
#include "server/inference_service_context.h"
#include "server/inference_service_turn.h"

namespace reprise {

class AppendCall final : public grpc::ServerUnaryReactor, public TurnCall {
 public:
  // Starts a call. The pointers are gRPC's and live until it is done.
  static grpc::ServerUnaryReactor* Start(ServiceContext& context,
                                         grpc::CallbackServerContext* rpc,
                                         const v1::AppendRequest* request,
                                         v1::AppendResponse* response);

  AppendCall(ServiceContext& context, grpc::CallbackServerContext* rpc,
             const v1::AppendRequest* request, v1::AppendResponse* response);

  void OnCancel() override { Cancelled(); }
  void OnDone() override { Left(); }

 private:
  absl::StatusOr<TurnRequest> MakeTurn() override;
  void OnEvents() override;
  void SendStatus(const grpc::Status& status) override { Finish(status); }
  // On the executor: looks the session up for the answer.
  void Answer();

  const v1::AppendRequest* const request_;
  v1::AppendResponse* const response_ ABSL_PT_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;  // the stream's status came
};

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_APPEND_H_
