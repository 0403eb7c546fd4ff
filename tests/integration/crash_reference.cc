#include "tests/integration/crash_reference.h"

#include <gtest/gtest.h>

namespace reprise {

v1::GenerateRequest ContinuationRequest() {
  v1::GenerateRequest request = TextRequest(" And the LORD", 6);
  request.mutable_sampling()->set_seed(42);
  return request;
}

CrashReference::CrashReference(const std::vector<std::string>& model_arguments)
    : server_([&] {
        std::vector<std::string> arguments = model_arguments;
        arguments.push_back("--store=memory:");
        arguments.push_back("--checkpoint-bytes=0");
        return arguments;
      }()) {}

v1::Inference::Stub& CrashReference::stub() {
  if (inference_ == nullptr) {
    inference_ = server_.NewStub();
    sessions_ = server_.NewSessionsStub();
  }
  return *inference_;
}

CrashReference::Node& CrashReference::NodeOf(const Lineage& lineage) {
  if (lineage.empty()) return empty_;
  const std::string key = ToString(lineage);
  const auto found = nodes_.find(key);
  if (found != nodes_.end()) return found->second;
  const Lineage before(lineage.begin(), lineage.end() - 1);
  const std::string parent = NodeOf(before).session;
  Node node;
  node.session = "n" + std::to_string(nodes_.size());
  if (!parent.empty()) {
    v1::ForkSessionRequest fork;
    fork.set_id(parent);
    fork.set_new_id(node.session);
    grpc::ClientContext context;
    v1::Session ignored;
    stub();
    EXPECT_TRUE(sessions_->Fork(&context, fork, &ignored).ok());
  }
  const CrashTurn& turn = lineage.back();
  if (turn.tokens > 0) {
    const Completion completion =
        Generate(stub(), RequestOf(node.session, turn));
    EXPECT_TRUE(completion.status.ok()) << completion.status.error_message();
    node.turn = completion.token_ids;
  } else {
    v1::AppendRequest append;
    append.set_session_id(node.session);
    append.set_text(kCrashPrompts[turn.prompt]);
    append.set_create_session(true);
    grpc::ClientContext context;
    v1::AppendResponse ignored;
    stub();
    EXPECT_TRUE(sessions_->Append(&context, append, &ignored).ok());
  }
  return nodes_[key] = node;
}

const std::vector<int32_t>& CrashReference::LastTurn(const Lineage& lineage) {
  return NodeOf(lineage).turn;
}

const std::vector<int32_t>& CrashReference::Continuation(
    const Lineage& lineage) {
  Node& node = NodeOf(lineage);
  if (!node.continuation.empty()) return node.continuation;
  v1::GenerateRequest request = ContinuationRequest();
  if (!node.session.empty()) {
    request.set_session_id(node.session);
    request.set_commit(v1::COMMIT_POLICY_NEVER);
  }
  const Completion completion = Generate(stub(), request);
  EXPECT_TRUE(completion.status.ok()) << completion.status.error_message();
  node.continuation = completion.token_ids;
  return node.continuation;
}

}  // namespace reprise
