// A gRPC server in this process that answers like Reprise, from a script, and
// remembers what it was asked.
#ifndef TESTS_CLIENT_FAKE_SERVER_H_
#define TESTS_CLIENT_FAKE_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "proto/inference.grpc.pb.h"
#include "tests/client/fake_answer.h"
#include "tests/client/fake_sessions.h"

namespace reprise {

class FakeInference final : public v1::Inference::Service {
 public:
  void SetAnswer(FakeAnswer answer);
  // For the next calls, one each, before the one that was set.
  void QueueAnswer(FakeAnswer answer);
  // What GetModel says of it; none at first.
  void SetChatTemplate(const std::string& name);
  v1::GenerateRequest last_request() const;
  int generate_calls() const;
  v1::ScoreRequest last_score() const;
  v1::TokenizeRequest last_tokenize() const;
  int cancelled_calls() const;

  grpc::Status Generate(
      grpc::ServerContext* context, const v1::GenerateRequest* request,
      grpc::ServerWriter<v1::GenerateResponse>* writer) override;
  // One token a byte; a message for each but the first, with totals as if each
  // had half a chance.
  grpc::Status Score(grpc::ServerContext* context,
                     const v1::ScoreRequest* request,
                     grpc::ServerWriter<v1::ScoreResponse>* writer) override;
  // One token a byte.
  grpc::Status Tokenize(grpc::ServerContext* context,
                        const v1::TokenizeRequest* request,
                        v1::TokenizeResponse* response) override;
  grpc::Status Detokenize(grpc::ServerContext* context,
                          const v1::DetokenizeRequest* request,
                          v1::DetokenizeResponse* response) override;
  grpc::Status GetModel(grpc::ServerContext* context,
                        const v1::GetModelRequest* request,
                        v1::Model* response) override;

 private:
  mutable Mutex mu_;
  FakeAnswer answer_ ABSL_GUARDED_BY(mu_);
  std::deque<FakeAnswer> queued_ ABSL_GUARDED_BY(mu_);
  int generate_calls_ ABSL_GUARDED_BY(mu_) = 0;
  v1::GenerateRequest last_request_ ABSL_GUARDED_BY(mu_);
  v1::ScoreRequest last_score_ ABSL_GUARDED_BY(mu_);
  v1::TokenizeRequest last_tokenize_ ABSL_GUARDED_BY(mu_);
  std::string chat_template_ ABSL_GUARDED_BY(mu_);
  int cancelled_calls_ ABSL_GUARDED_BY(mu_) = 0;
};

// Listens on a free loopback port for as long as it lives.
class FakeServer {
 public:
  FakeServer();
  ~FakeServer();

  const std::string& address() const { return address_; }
  FakeInference inference;
  FakeSessions sessions;

 private:
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace reprise

#endif  // TESTS_CLIENT_FAKE_SERVER_H_
