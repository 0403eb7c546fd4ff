#include "server/inference_service_rpc.h"

#include <chrono>
#include <string>
#include <utility>

namespace reprise {
namespace {

// When to come back after a limit was reached; a queue of a thousand requests
// moves on by some in a second.
constexpr const char* kRetryAfterMs = "1000";

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  constexpr size_t kMaxMessageBytes = 1024;
  if (status.ok()) return grpc::Status::OK;
  std::string message(status.message());
  if (message.size() > kMaxMessageBytes) {
    message.resize(kMaxMessageBytes - 3);
    message += "...";
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::move(message));
}

void AddRetryDelay(const absl::Status& status, grpc::ServerContextBase& rpc) {
  // gRPC's own header for this (proposal A6), understood by its clients. The
  // message of google.rpc, RetryInfo, has no header in Debian's packages.
  if (absl::IsResourceExhausted(status)) {
    rpc.AddTrailingMetadata("grpc-retry-pushback-ms", kRetryAfterMs);
  }
}

grpc::ServerUnaryReactor* RunUnary(ServiceContext& context, Executor& executor,
                                   grpc::CallbackServerContext* rpc,
                                   std::function<absl::Status()> work) {
  if (absl::Status entered = context.calls.Enter(); !entered.ok()) {
    return FinishUnary(rpc, entered);
  }
  grpc::ServerUnaryReactor* reactor = rpc->DefaultReactor();
  executor.Run([=, &context, work = std::move(work)] {
    const absl::Status status = work();
    AddRetryDelay(status, *rpc);
    context.calls.Leave();
    reactor->Finish(ToGrpcStatus(status));
  });
  return reactor;
}

grpc::ServerUnaryReactor* FinishUnary(grpc::CallbackServerContext* rpc,
                                      const absl::Status& status) {
  AddRetryDelay(status, *rpc);
  grpc::ServerUnaryReactor* reactor = rpc->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

CancelCause CauseOfCancel(const grpc::CallbackServerContext& rpc,
                          double seconds_since_arrival) {
  // A client cancels at its own deadline, which may come before the server's:
  // that one starts with the arrival and is rounded up on the wire, by at most
  // a hundredth.
  using Seconds = std::chrono::duration<double>;
  const double left =
      Seconds(rpc.deadline() - std::chrono::system_clock::now()).count();
  const double slack = 0.02 + 0.02 * (seconds_since_arrival + left);
  return left <= slack ? CancelCause::kDeadline : CancelCause::kClient;
}

}  // namespace reprise
