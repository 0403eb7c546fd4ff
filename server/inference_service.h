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

  grpc::ServerUnaryReactor* Create(grpc::CallbackServerContext* rpc,
                                   const v1::CreateSessionRequest* request,
                                   v1::Session* response) override;
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* rpc,
                                const v1::GetSessionRequest* request,
                                v1::Session* response) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* rpc,
                                 const v1::ListSessionsRequest* request,
                                 v1::ListSessionsResponse* response) override;
  grpc::ServerUnaryReactor* Append(grpc::CallbackServerContext* rpc,
                                   const v1::AppendRequest* request,
                                   v1::AppendResponse* response) override;
  grpc::ServerUnaryReactor* Suspend(grpc::CallbackServerContext* rpc,
                                    const v1::SuspendSessionRequest* request,
                                    v1::Session* response) override;
  grpc::ServerUnaryReactor* Resume(
      grpc::CallbackServerContext* rpc, const v1::ResumeSessionRequest* request,
      v1::ResumeSessionResponse* response) override;
  grpc::ServerUnaryReactor* Fork(grpc::CallbackServerContext* rpc,
                                 const v1::ForkSessionRequest* request,
                                 v1::Session* response) override;
  grpc::ServerUnaryReactor* Rewind(grpc::CallbackServerContext* rpc,
                                   const v1::RewindSessionRequest* request,
                                   v1::Session* response) override;
  grpc::ServerWriteReactor<v1::SnapshotChunk>* Export(
      grpc::CallbackServerContext* rpc,
      const v1::ExportSessionRequest* request) override;
  grpc::ServerReadReactor<v1::SnapshotChunk>* Import(
      grpc::CallbackServerContext* rpc, v1::Session* response) override;
  grpc::ServerUnaryReactor* Delete(
      grpc::CallbackServerContext* rpc, const v1::DeleteSessionRequest* request,
      v1::DeleteSessionResponse* response) override;
  grpc::ServerUnaryReactor* Touch(grpc::CallbackServerContext* rpc,
                                  const v1::TouchSessionRequest* request,
                                  v1::Session* response) override;
  grpc::ServerUnaryReactor* SavePreset(grpc::CallbackServerContext* rpc,
                                       const v1::SavePresetRequest* request,
                                       v1::Preset* response) override;
  grpc::ServerUnaryReactor* DeletePreset(
      grpc::CallbackServerContext* rpc, const v1::DeletePresetRequest* request,
      v1::DeletePresetResponse* response) override;
  grpc::ServerUnaryReactor* ListPresets(
      grpc::CallbackServerContext* rpc, const v1::ListPresetsRequest* request,
      v1::ListPresetsResponse* response) override;

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
