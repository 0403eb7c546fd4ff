// The same conversations on a server that nobody kills.
#ifndef TESTS_INTEGRATION_CRASH_REFERENCE_H_
#define TESTS_INTEGRATION_CRASH_REFERENCE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "proto/inference.grpc.pb.h"
#include "tests/integration/crash_record.h"
#include "tests/support/server_process.h"

namespace reprise {

// What a conversation is asked to go on with, to see where it stands.
v1::GenerateRequest ContinuationRequest();

// Used by one thread.
class CrashReference {
 public:
  explicit CrashReference(const std::vector<std::string>& model_arguments);
  bool AwaitReady() { return server_.AwaitReady(); }

  v1::Inference::Stub& stub();
  // The tokens that follow this state, of ContinuationRequest.
  const std::vector<int32_t>& Continuation(const Lineage& lineage);
  // The tokens of its last turn.
  const std::vector<int32_t>& LastTurn(const Lineage& lineage);
  size_t turns() const { return nodes_.size(); }

 private:
  struct Node {
    std::string session;
    std::vector<int32_t> turn;
    std::vector<int32_t> continuation;
  };
  // Of a state with a turn: carried out in one go after the state before it.
  Node& NodeOf(const Lineage& lineage);

  ServerProcess server_;
  std::unique_ptr<v1::Inference::Stub> inference_;
  std::unique_ptr<v1::Sessions::Stub> sessions_;
  std::map<std::string, Node> nodes_;
  Node empty_;
};

}  // namespace reprise

#endif  // TESTS_INTEGRATION_CRASH_REFERENCE_H_
