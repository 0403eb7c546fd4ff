#include "server/inference_service.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "server/inference_service_generate.h"
#include "server/inference_service_messages.h"
#include "server/inference_service_request.h"
#include "server/inference_service_response.h"
#include "server/inference_service_rpc.h"
#include "server/inference_service_score.h"

namespace reprise {
namespace {

absl::Status Tokenize(const v1::TokenizeRequest& request,
                      const ServiceContext& context,
                      v1::TokenizeResponse& response) {
  if (request.has_messages() && !request.text().empty()) {
    return absl::InvalidArgumentError(
        "messages: there is a text too, and only one can be tokenised");
  }
  ASSIGN_OR_RETURN(
      const std::vector<int32_t> ids,
      request.has_messages()
          ? MessagesToPrompt(request.messages(), request.allow_special_tokens(),
                             context)
          : EncodeText(request.text(), request.allow_special_tokens(),
                       context));
  for (const int32_t id : ids) {
    response.add_ids(id);
    response.add_pieces(std::string(context.tokenizer.TokenBytes(id)));
  }
  return absl::OkStatus();
}

absl::Status Detokenize(const v1::DetokenizeRequest& request,
                        const ServiceContext& context,
                        v1::DetokenizeResponse& response) {
  // A token may stand for many bytes, so that this bounds the answer too.
  if (request.ids_size() > context.options.max_prompt_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ids: ", request.ids_size(), " tokens are more than the server takes, ",
        context.options.max_prompt_tokens));
  }
  const std::vector<int32_t> ids(request.ids().begin(), request.ids().end());
  RETURN_IF_ERROR(ValidateTokenIds(ids, "ids", context.model.vocab_size));
  response.set_text(
      Decode(context.tokenizer, ids, request.keep_special_tokens()));
  return absl::OkStatus();
}

}  // namespace

grpc::ServerWriteReactor<v1::GenerateResponse>* InferenceService::Generate(
    grpc::CallbackServerContext* rpc, const v1::GenerateRequest* request) {
  return GenerateCall::Start(
      std::make_shared<GenerateCall>(context_, rpc, request));
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(
    grpc::CallbackServerContext* rpc, const v1::TokenizeRequest* request,
    v1::TokenizeResponse* response) {
  return RunUnary(context_, context_.text, rpc, [=, this] {
    return reprise::Tokenize(*request, context_, *response);
  });
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(
    grpc::CallbackServerContext* rpc, const v1::DetokenizeRequest* request,
    v1::DetokenizeResponse* response) {
  return RunUnary(context_, context_.text, rpc, [=, this] {
    return reprise::Detokenize(*request, context_, *response);
  });
}

grpc::ServerWriteReactor<v1::ScoreResponse>* InferenceService::Score(
    grpc::CallbackServerContext* rpc, const v1::ScoreRequest* request) {
  return ScoreCall::Start(std::make_shared<ScoreCall>(context_, rpc, request));
}

grpc::ServerUnaryReactor* InferenceService::GetModel(
    grpc::CallbackServerContext* rpc, const v1::GetModelRequest*,
    v1::Model* response) {
  Fill(context_, *response);
  return FinishUnary(rpc, absl::OkStatus());
}

grpc::ServerUnaryReactor* AdminService::GetLoad(
    grpc::CallbackServerContext* rpc, const v1::GetLoadRequest*,
    v1::GetLoadResponse*) {
  return FinishUnary(
      rpc, absl::UnimplementedError(
               "GetLoad is not built yet; the metrics have the load"));
}

grpc::ServerUnaryReactor* AdminService::Drain(grpc::CallbackServerContext* rpc,
                                              const v1::DrainRequest*,
                                              v1::DrainResponse*) {
  return FinishUnary(rpc,
                     absl::UnimplementedError(
                         "Drain is not built yet; send the process SIGTERM"));
}

}  // namespace reprise
