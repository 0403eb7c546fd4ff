// Generate calls as tests make them, and what came of them.
#ifndef TESTS_SUPPORT_GENERATE_CALL_H_
#define TESTS_SUPPORT_GENERATE_CALL_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <string>
#include <vector>

#include "proto/inference.grpc.pb.h"

namespace reprise {

// What came of a Generate call.
struct Completion {
  grpc::Status status;
  std::vector<v1::GenerateResponse> messages;
  v1::Started started;
  std::vector<v1::Finished> finished;
  std::string text;                // of completion 0
  std::vector<int32_t> token_ids;  // of completion 0
  std::string logprobs;            // of completion 0, as bytes
};

inline void AddMessage(const v1::GenerateResponse& message,
                       Completion& completion) {
  completion.messages.push_back(message);
  if (message.has_started()) completion.started = message.started();
  if (message.has_finished()) completion.finished.push_back(message.finished());
  if (message.has_delta() && message.delta().index() == 0) {
    completion.text += message.delta().text();
    completion.token_ids.insert(completion.token_ids.end(),
                                message.delta().token_ids().begin(),
                                message.delta().token_ids().end());
    for (const v1::TokenLogprobs& token : message.delta().logprobs()) {
      completion.logprobs += token.SerializeAsString();
    }
  }
}

// Calls Generate and reads to the end.
inline Completion Generate(v1::Inference::Stub& stub,
                           const v1::GenerateRequest& request,
                           grpc::ClientContext* context = nullptr) {
  grpc::ClientContext own;
  if (context == nullptr) context = &own;
  Completion completion;
  auto reader = stub.Generate(context, request);
  v1::GenerateResponse message;
  while (reader->Read(&message)) AddMessage(message, completion);
  completion.status = reader->Finish();
  return completion;
}

// A request that draws from seed 7 and shows its tokens.
inline v1::GenerateRequest TextRequest(const std::string& text,
                                       uint32_t max_new_tokens) {
  v1::GenerateRequest request;
  request.set_text(text);
  request.mutable_sampling()->set_seed(7);
  request.mutable_stopping()->set_max_new_tokens(max_new_tokens);
  request.mutable_stopping()->set_ignore_eos(true);
  request.mutable_output()->set_token_ids(true);
  return request;
}

inline v1::GenerateRequest SessionRequest(const std::string& session,
                                          const std::string& text,
                                          uint32_t max_new_tokens) {
  v1::GenerateRequest request = TextRequest(text, max_new_tokens);
  request.set_session_id(session);
  request.set_create_session(true);
  return request;
}

}  // namespace reprise

#endif  // TESTS_SUPPORT_GENERATE_CALL_H_
