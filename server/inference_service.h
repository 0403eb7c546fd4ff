// The gRPC services. Each call validates, hands on what is to be done, and
// answers; nothing is computed or waited for on gRPC's threads.
#ifndef SERVER_INFERENCE_SERVICE_H_
#define SERVER_INFERENCE_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "proto/inference.grpc.pb.h"
#include "server/inference_service_context.h"

namespace reprise {

// Thread-safe. `context` must outlive the service.
class InferenceService final : public v1::Inference::CallbackService {
 public:
  explicit InferenceService(ServiceContext& context) : context_(context) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* rpc,
      const v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* rpc,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(
      grpc::CallbackServerContext* rpc, const v1::DetokenizeRequest* request,
      v1::DetokenizeResponse* response) override;
  grpc::ServerWriteReactor<v1::ScoreResponse>* Score(
      grpc::CallbackServerContext* rpc,
      const v1::ScoreRequest* request) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* rpc,
                                     const v1::GetModelRequest* request,
                                     v1::Model* response) override;

 private:
  ServiceContext& context_;
};

// Thread-safe. `context` must outlive the service.
class SessionsService final : public v1::Sessions::CallbackService {
 public:
  explicit SessionsService(ServiceContext& context) : context_(context) {}

  template <typename Request, typename Response>
  using Unary = grpc::ServerUnaryReactor*(grpc::CallbackServerContext* rpc,
                                          const Request* request,
                                          Response* response);

  Unary<v1::CreateSessionRequest, v1::Session> Create;
  Unary<v1::GetSessionRequest, v1::Session> Get;
  Unary<v1::ListSessionsRequest, v1::ListSessionsResponse> List;
  Unary<v1::AppendRequest, v1::AppendResponse> Append;
  Unary<v1::SuspendSessionRequest, v1::Session> Suspend;
  Unary<v1::ResumeSessionRequest, v1::ResumeSessionResponse> Resume;
  Unary<v1::ForkSessionRequest, v1::Session> Fork;
  Unary<v1::RewindSessionRequest, v1::Session> Rewind;
  grpc::ServerWriteReactor<v1::SnapshotChunk>* Export(
      grpc::CallbackServerContext* rpc,
      const v1::ExportSessionRequest* request) override;
  grpc::ServerReadReactor<v1::SnapshotChunk>* Import(
      grpc::CallbackServerContext* rpc, v1::Session* response) override;
  Unary<v1::DeleteSessionRequest, v1::DeleteSessionResponse> Delete;
  Unary<v1::TouchSessionRequest, v1::Session> Touch;
  Unary<v1::ListPresetsRequest, v1::ListPresetsResponse> ListPresets;

 private:
  SessionKey Key(const std::string& id) const;

  ServiceContext& context_;
};

// Thread-safe.
class AdminService final : public v1::Admin::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetLoad(grpc::CallbackServerContext* rpc,
                                    const v1::GetLoadRequest* request,
                                    v1::GetLoadResponse* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* rpc,
                                  const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override;
};

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_H_
