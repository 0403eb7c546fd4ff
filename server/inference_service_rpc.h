// The parts that every call of the service is made of.
#ifndef SERVER_INFERENCE_SERVICE_RPC_H_
#define SERVER_INFERENCE_SERVICE_RPC_H_

#include <grpcpp/grpcpp.h>

#include <functional>

#include "absl/status/status.h"
#include "server/inference_service_context.h"

namespace reprise {

// The status as gRPC sends it. The codes are the same; a long message is cut,
// since statuses travel in headers, which are limited to 8 KiB.
grpc::Status ToGrpcStatus(const absl::Status& status);

// If a limit was the reason for `status`, adds to the trailing metadata when to
// come back. Call it before Finish.
void AddRetryDelay(const absl::Status& status, grpc::ServerContextBase& rpc);

// Runs `work` on `executor` and finishes the call with what it returns.
// Requests and responses live until then.
grpc::ServerUnaryReactor* RunUnary(ServiceContext& context, Executor& executor,
                                   grpc::CallbackServerContext* rpc,
                                   std::function<absl::Status()> work);

// Finishes a call at once.
grpc::ServerUnaryReactor* FinishUnary(grpc::CallbackServerContext* rpc,
                                      const absl::Status& status);

// Why a call ended early, seen from the server: its deadline, or the client.
// Valid until the call is done.
CancelCause CauseOfCancel(const grpc::CallbackServerContext& rpc,
                          double seconds_since_arrival);

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_RPC_H_
