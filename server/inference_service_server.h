// The gRPC server: the services, health, reflection, limits.
#ifndef SERVER_INFERENCE_SERVICE_SERVER_H_
#define SERVER_INFERENCE_SERVICE_SERVER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "server/inference_service_context.h"
#include "server/listener.h"

namespace reprise {

// Thread-safe but for Shutdown and destruction, which come once.
class RpcServer {
 public:
  // Serves the connections of `listener`, which is bound; health says SERVING
  // from the start. `context` must outlive the server. Unavailable if somebody
  // else listens there by now, Internal if gRPC does not start.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      ServiceContext& context, std::unique_ptr<Listener> listener);
  ~RpcServer();  // shuts down at once

  int port() const;

  // The way down, in this order. Health says NOT_SERVING, for good; no Export
  // and no Import begins, and those that are open wait a second for their
  // clients, no longer:
  void StopServing();
  // Turns that still run end with what they have, and transfers with nothing
  // (CancelCause::kShutdown):
  void CancelCalls();
  // Closes the port; no new calls; waits until the open ones are done, and
  // cancels those that are not after `grace_ms`. No call is left when it
  // returns.
  void Shutdown(int64_t grace_ms);

 private:
  struct Impl;
  explicit RpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_SERVER_H_
