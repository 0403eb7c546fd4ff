// One Import call.
#ifndef SERVER_INFERENCE_SERVICE_IMPORT_H_
#define SERVER_INFERENCE_SERVICE_IMPORT_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "proto/inference.pb.h"
#include "server/client_states.h"
#include "server/inference_service_transfer.h"

namespace reprise {

// Takes chunk after chunk, and refuses the first byte that is too much. What
// came is opened and stored on the executor once the client has ended its
// stream. So only one thread at a time works on the call.
class ImportCall final : public grpc::ServerReadReactor<v1::SnapshotChunk>,
                         public TransferCall {
 public:
  // Starts a call. The pointers are gRPC's and live until it is done.
  static grpc::ServerReadReactor<v1::SnapshotChunk>* Start(
      ServiceContext& context, grpc::CallbackServerContext* rpc,
      v1::Session* response);

  ImportCall(ServiceContext& context, grpc::CallbackServerContext* rpc,
             v1::Session* response);

  void OnReadDone(bool ok) override;
  void OnDone() override { Left(); }

 private:
  void ReadNext();
  absl::Status TakeChunk();
  absl::Status TakeTarget();
  absl::Status Store();
  void SendStatus(const grpc::Status& status) override { Finish(status); }

  v1::Session* const response_;
  const int64_t most_bytes_;  // of the largest session
  v1::SnapshotChunk chunk_;
  bool first_ = true;
  ImportTarget target_;
  std::string bytes_;
  std::optional<uint32_t> crc32c_;  // the last chunk has come
};

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_IMPORT_H_
