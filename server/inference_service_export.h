// One Export call.
#ifndef SERVER_INFERENCE_SERVICE_EXPORT_H_
#define SERVER_INFERENCE_SERVICE_EXPORT_H_

#include <grpcpp/grpcpp.h>

#include <cstddef>

#include "absl/status/status.h"
#include "proto/inference.pb.h"
#include "server/client_states.h"
#include "server/inference_service_transfer.h"

namespace reprise {

// Reads and seals the session on the executor, then writes it, a chunk after
// the other. So only one thread at a time works on the call.
class ExportCall final : public grpc::ServerWriteReactor<v1::SnapshotChunk>,
                         public TransferCall {
 public:
  // Starts a call. The pointers are gRPC's and live until it is done.
  static grpc::ServerWriteReactor<v1::SnapshotChunk>* Start(
      ServiceContext& context, grpc::CallbackServerContext* rpc,
      const v1::ExportSessionRequest* request);

  ExportCall(ServiceContext& context, grpc::CallbackServerContext* rpc,
             const v1::ExportSessionRequest* request)
      : TransferCall(context, rpc), request_(request) {}

  void OnWriteDone(bool ok) override;
  void OnDone() override { Left(); }

 private:
  absl::Status Prepare();
  void WriteNext();
  void SendStatus(const grpc::Status& status) override { Finish(status); }

  const v1::ExportSessionRequest* const request_;
  SealedState sealed_;
  size_t sent_ = 0;  // bytes of it, with the chunk that is being written
  v1::SnapshotChunk chunk_;
};

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_EXPORT_H_
