// The gRPC server: the services, health, reflection, limits.
#ifndef SERVER_INFERENCE_SERVICE_SERVER_H_
#define SERVER_INFERENCE_SERVICE_SERVER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "server/inference_service_context.h"

namespace reprise {

// Thread-safe but for Shutdown and destruction, which come once.
class RpcServer {
 public:
  // Listens on context.options.listen; health says SERVING from the start.
  // `context` must outlive the server. Unavailable if the port is taken or the
  // address is not this machine's.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      ServiceContext& context);
  ~RpcServer();  // shuts down at once

  int port() const;

  // The way down, in this order. Health says NOT_SERVING, for good:
  void StopServing();
  // Turns that still run end with what they have (CancelCause::kShutdown):
  void CancelTurns();
  // No new calls; waits until the open ones are done, and cancels those that
  // are not after `grace_ms`. No call is left when it returns.
  void Shutdown(int64_t grace_ms);

 private:
  struct Impl;
  explicit RpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_SERVER_H_
