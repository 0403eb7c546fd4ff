// One Score call: a turn without a session that only reads, and whose answer is
// what its own tokens cost.
#ifndef SERVER_INFERENCE_SERVICE_SCORE_H_
#define SERVER_INFERENCE_SERVICE_SCORE_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "proto/inference.pb.h"
#include "server/inference_service_stream.h"

namespace reprise {

class ScoreCall final : public StreamCall<v1::ScoreResponse> {
 public:
  // `rpc` and `request` are gRPC's and live until the call is done.
  ScoreCall(ServiceContext& context, grpc::CallbackServerContext* rpc,
            const v1::ScoreRequest* request)
      : StreamCall(context, rpc,
                   {.method = "Score",
                    .request_id = request->request_id(),
                    .session = {}}),
        request_(request) {}

 private:
  absl::StatusOr<TurnRequest> MakeTurn() override;
  bool PutEvent(StreamEvent& event, v1::ScoreResponse& message) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Moves log-probabilities to `message`, as many as fit. Whether that is all.
  bool PutTokens(DeltaEvent& delta, v1::ScoreResponse& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const v1::ScoreRequest* const request_;
  // Of what was put so far.
  int64_t text_tokens_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t scored_tokens_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t scored_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  double logprob_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_SCORE_H_
