// A whole server in the test's process: real gRPC on a free loopback port, real
// scheduler, sessions and threads, on the fake engine and a store in memory.
#ifndef TESTS_SUPPORT_TEST_SERVER_H_
#define TESTS_SUPPORT_TEST_SERVER_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "engine/base/clock.h"
#include "engine/template/chat_format.h"
#include "proto/inference.grpc.pb.h"
#include "server/executor.h"
#include "server/inference_service_context.h"
#include "server/inference_service_server.h"
#include "server/listener.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/scheduler.h"
#include "server/session_manager.h"
#include "server/store/snapshot_store.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_engine.h"
#include "tests/support/fake_tokenizer.h"
#include "tests/support/faulty_store.h"
#include "tests/support/generate_call.h"
#include "tests/support/step_gate.h"
#include "tests/support/test_server_options.h"

namespace reprise {

class TestServer {
 public:
  static ServerOptions SmallOptions() { return SmallServerOptions(); }

  // A chat template is read from options.model_dir, and nothing else. `clock`
  // must outlive the server.
  explicit TestServer(const ServerOptions& options = SmallOptions(),
                      const Clock& clock = Clock::Real())
      : options_(options),
        clock_(clock),
        metrics_("fake"),
        engine_(FakeEngine::Options{}) {
    engine_.before_step = [this](auto) { gate_.Pass(); };
    model_ = engine_.info();
    model_.eos_tokens = {FakeTokenizer::kEos};
    model_.fingerprints.tokenizer = tokenizer_.fingerprint();
    auto sessions = SessionManager::Create(
        model_.fingerprints, engine_.layout(), 32, store_, metrics_, clock_,
        ManagerOptionsOf(options_));
    CHECK(sessions.ok());
    sessions_ = *std::move(sessions);
    scheduler_ = std::make_unique<Scheduler>(engine_, tokenizer_, *sessions_,
                                             *executor_, metrics_, clock_,
                                             SchedulerOptionsOf(options_));
    thread_ = std::thread([this] { scheduler_->Run(); });
    context_.reset(new ServiceContext{.scheduler = *scheduler_,
                                      .sessions = *sessions_,
                                      .tokenizer = tokenizer_,
                                      .model = model_,
                                      .chat = chat_,
                                      .executor = *executor_,
                                      .text = *text_,
                                      .delivery = *delivery_,
                                      .metrics = metrics_,
                                      .clock = clock_,
                                      .options = options_});
    auto listener = Listener::Bind(options_.listen);
    CHECK(listener.ok());
    auto rpc = RpcServer::Start(*context_, *std::move(listener));
    CHECK(rpc.ok());
    rpc_ = *std::move(rpc);
    channel_ = NewChannel();
    inference_ = v1::Inference::NewStub(channel_);
    session_stub_ = v1::Sessions::NewStub(channel_);
  }

  ~TestServer() {
    gate_.Open();
    rpc_.reset();
    scheduler_->Stop();
    thread_.join();
    text_.reset();
    executor_.reset();
    delivery_.reset();
    context_.reset();
    scheduler_.reset();
    // Whatever a test did, every slot came back.
    sessions_->SuspendAll();
    EXPECT_EQ(sessions_->num_free_slots(), sessions_->num_slots());
  }

  std::shared_ptr<grpc::Channel> NewChannel() const {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(
        "127.0.0.1:" + std::to_string(rpc_->port()),
        grpc::InsecureChannelCredentials(), arguments);
  }

  v1::Inference::Stub& inference() { return *inference_; }
  v1::Sessions::Stub& sessions() { return *session_stub_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  StepGate& gate() { return gate_; }
  Scheduler& scheduler() { return *scheduler_; }
  SessionManager& manager() { return *sessions_; }
  RpcServer& rpc() { return *rpc_; }
  FaultyStore& store() { return store_; }
  Metrics& metrics() { return metrics_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  Executor& executor() { return *executor_; }
  int64_t open_calls() const { return context_->calls.open(); }

 private:
  ServerOptions options_;
  const Clock& clock_;
  Metrics metrics_;
  FakeEngine engine_;
  FakeTokenizer tokenizer_;
  const ChatFormat chat_ =
      ChatFormat::Load(options_.model_dir, tokenizer_, {FakeTokenizer::kEos});
  StepGate gate_;
  std::unique_ptr<SnapshotStore> memory_ = NewMemoryStore();
  FaultyStore store_{*memory_};
  ModelInfo model_;
  std::unique_ptr<SessionManager> sessions_;
  std::unique_ptr<ThreadPool> executor_ = std::make_unique<ThreadPool>(2);
  std::unique_ptr<ThreadPool> text_ = std::make_unique<ThreadPool>(1);
  std::unique_ptr<ThreadPool> delivery_ = std::make_unique<ThreadPool>(1);
  std::unique_ptr<Scheduler> scheduler_;
  std::thread thread_;
  std::unique_ptr<ServiceContext> context_;
  std::unique_ptr<RpcServer> rpc_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> inference_;
  std::unique_ptr<v1::Sessions::Stub> session_stub_;
};

}  // namespace reprise

#endif  // TESTS_SUPPORT_TEST_SERVER_H_
