// One Generate call.
#ifndef SERVER_INFERENCE_SERVICE_GENERATE_H_
#define SERVER_INFERENCE_SERVICE_GENERATE_H_

#include <grpcpp/grpcpp.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "proto/inference.pb.h"
#include "server/byte_budget.h"
#include "server/inference_service_context.h"
#include "server/inference_service_stream.h"

namespace reprise {

class GenerateCall final : public StreamCall<v1::GenerateResponse> {
 public:
  // `rpc` and `request` are gRPC's and live until the call is done.
  GenerateCall(ServiceContext& context, grpc::CallbackServerContext* rpc,
               const v1::GenerateRequest* request);

 private:
  absl::StatusOr<TurnRequest> MakeTurn() override;
  bool PutEvent(StreamEvent& event, v1::GenerateResponse& message) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Constant after construction.
  const v1::GenerateRequest* const request_;
  const bool timings_;

  v1::Started started_ ABSL_GUARDED_BY(mu_);
  // For the request's snapshot: as it came, which gRPC keeps until the end, and
  // opened. MakeTurn's.
  ByteBudget::Share share_;
};

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_GENERATE_H_
