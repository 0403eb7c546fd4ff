#include "tests/client/fake_server.h"

#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "engine/base/log.h"

namespace reprise {

void FakeInference::SetAnswer(FakeAnswer answer) {
  MutexLock lock(mu_);
  answer_ = std::move(answer);
}

void FakeInference::QueueAnswer(FakeAnswer answer) {
  MutexLock lock(mu_);
  queued_.push_back(std::move(answer));
}

int FakeInference::generate_calls() const {
  MutexLock lock(mu_);
  return generate_calls_;
}

void FakeInference::SetChatTemplate(const std::string& name) {
  MutexLock lock(mu_);
  chat_template_ = name;
}

v1::TokenizeRequest FakeInference::last_tokenize() const {
  MutexLock lock(mu_);
  return last_tokenize_;
}

v1::GenerateRequest FakeInference::last_request() const {
  MutexLock lock(mu_);
  return last_request_;
}

v1::ScoreRequest FakeInference::last_score() const {
  MutexLock lock(mu_);
  return last_score_;
}

int FakeInference::cancelled_calls() const {
  MutexLock lock(mu_);
  return cancelled_calls_;
}

grpc::Status FakeInference::Generate(
    grpc::ServerContext* context, const v1::GenerateRequest* request,
    grpc::ServerWriter<v1::GenerateResponse>* writer) {
  FakeAnswer answer;
  {
    MutexLock lock(mu_);
    last_request_ = *request;
    ++generate_calls_;
    answer = answer_;
    if (!queued_.empty()) {
      answer = std::move(queued_.front());
      queued_.pop_front();
    }
  }
  for (const v1::GenerateResponse& message : answer.messages) {
    writer->Write(message);
  }
  while (answer.endless && writer->Write(answer.messages.back())) {
  }
  // gRPC's synchronous server has nothing to wait on for a cancel.
  while (answer.wait_for_cancel && !context->IsCancelled()) {
    std::this_thread::yield();
  }
  if (answer.wait_for_cancel || answer.endless) {
    MutexLock lock(mu_);
    ++cancelled_calls_;
  }
  return answer.status;
}

grpc::Status FakeInference::Score(
    grpc::ServerContext*, const v1::ScoreRequest* request,
    grpc::ServerWriter<v1::ScoreResponse>* writer) {
  {
    MutexLock lock(mu_);
    last_score_ = *request;
  }
  const std::string& text = request->text();
  for (size_t i = 1; i < text.size(); ++i) {
    v1::ScoreResponse message;
    v1::TokenLogprob& token = *message.add_tokens()->mutable_chosen();
    token.set_token_id(static_cast<unsigned char>(text[i]));
    token.set_logprob(std::log(0.5F));
    v1::ScoreTotals& totals = *message.mutable_totals();
    totals.set_text_tokens(text.size());
    totals.set_scored_tokens(i);
    totals.set_scored_bytes(i);
    totals.set_logprob(static_cast<double>(i) * std::log(0.5));
    totals.set_perplexity(2);
    writer->Write(message);
  }
  if (text.size() >= 2) return grpc::Status::OK;
  return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "text: too short");
}

grpc::Status FakeInference::Tokenize(grpc::ServerContext*,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) {
  {
    MutexLock lock(mu_);
    last_tokenize_ = *request;
  }
  for (const char byte : request->text()) {
    response->add_ids(static_cast<unsigned char>(byte));
    response->add_pieces(std::string(1, byte));
  }
  return grpc::Status::OK;
}

grpc::Status FakeInference::Detokenize(grpc::ServerContext*,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) {
  for (const int32_t id : request->ids()) {
    response->mutable_text()->push_back(static_cast<char>(id));
  }
  return grpc::Status::OK;
}

grpc::Status FakeInference::GetModel(grpc::ServerContext*,
                                     const v1::GetModelRequest*,
                                     v1::Model* response) {
  response->set_name("fake");
  response->set_family("linear_attn");
  response->set_num_parameters(1'234'567);
  response->set_vocab_size(32);
  v1::ServerLimits& limits = *response->mutable_limits();
  limits.set_max_running_requests(8);
  limits.set_resident_sessions(9);
  limits.set_max_prompt_tokens(1'000);
  limits.set_max_new_tokens(100);
  MutexLock lock(mu_);
  response->set_chat_template(chat_template_);
  if (chat_template_.empty()) response->set_chat_template_problem("none");
  return grpc::Status::OK;
}

FakeServer::FakeServer() {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(&inference);
  builder.RegisterService(&sessions);
  server_ = builder.BuildAndStart();
  CHECK(server_ != nullptr);
  address_ = "127.0.0.1:" + std::to_string(port);
}

FakeServer::~FakeServer() {
  server_->Shutdown(std::chrono::system_clock::now());
}

}  // namespace reprise
