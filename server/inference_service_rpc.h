// The parts that every call of the service is made of.
#ifndef SERVER_INFERENCE_SERVICE_RPC_H_
#define SERVER_INFERENCE_SERVICE_RPC_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "server/inference_service_context.h"

namespace reprise {

// The status as gRPC sends it. The codes are the same; a long message is cut,
// since statuses travel in headers, which are limited to 8 KiB.
grpc::Status ToGrpcStatus(const absl::Status& status);

// A method's name in three parts, for metrics.
struct RpcMethod {
  const char* service;
  const char* name;
  const char* type;  // "unary", "server_stream", "client_stream"
};

// Counts one call, from its making to Handled. Copyable, so that a task can
// hold it.
class RpcRecorder {
 public:
  RpcRecorder(ServiceContext& context, const RpcMethod& method);

  // The call ends with `status`. Call it once, before Finish: it adds the
  // retry delay to the trailing metadata if a limit was the reason.
  void Handled(const absl::Status& status, grpc::ServerContextBase& rpc) const;
  // Seconds since the call came in.
  double Seconds() const;
  int64_t arrival_ns() const { return arrival_ns_; }

 private:
  ServiceContext* context_;
  RpcMethod method_;
  int64_t arrival_ns_;
};

// Runs `work` on the executor and finishes the call with what it returns.
// Requests and responses live until then.
grpc::ServerUnaryReactor* RunUnary(ServiceContext& context,
                                   const RpcMethod& method,
                                   grpc::CallbackServerContext* rpc,
                                   std::function<absl::Status()> work);

// Finishes a call at once.
grpc::ServerUnaryReactor* FinishUnary(ServiceContext& context,
                                      const RpcMethod& method,
                                      grpc::CallbackServerContext* rpc,
                                      const absl::Status& status);

// A stream to the client that ends at once with an error. Deletes itself.
template <typename Response>
class RefusedWriter final : public grpc::ServerWriteReactor<Response> {
 public:
  RefusedWriter(ServiceContext& context, const RpcMethod& method,
                grpc::CallbackServerContext* rpc, const absl::Status& status) {
    RpcRecorder(context, method).Handled(status, *rpc);
    this->Finish(ToGrpcStatus(status));
  }
  void OnDone() override { delete this; }
};

// Why a call ended early, seen from the server: its deadline, or the client.
// Valid until the call is done.
CancelCause CauseOfCancel(const grpc::CallbackServerContext& rpc,
                          double seconds_since_arrival);

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_RPC_H_
