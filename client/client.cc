#include "client/client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "proto/inference.grpc.pb.h"

namespace reprise {
namespace {

// A Started message may carry log-probabilities of a long prompt, which passes
// gRPC's default of 4 MiB.
constexpr int kMaxMessageBytes = 64 << 20;

std::chrono::system_clock::time_point After(int64_t milliseconds) {
  return std::chrono::system_clock::now() +
         std::chrono::milliseconds(milliseconds);
}

// The two libraries number their codes alike.
absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      status.error_message());
}

}  // namespace

void Cancellation::Cancel() {
  MutexLock lock(mu_);
  cancelled_ = true;
  if (context_ != nullptr) context_->TryCancel();
}

bool Cancellation::cancelled() const {
  MutexLock lock(mu_);
  return cancelled_;
}

// Ties a cancellation, or none, to a call for as long as the scope lives.
class CancellationScope {
 public:
  CancellationScope(Cancellation* cancellation, grpc::ClientContext& context)
      : cancellation_(cancellation) {
    if (cancellation_ == nullptr) return;
    MutexLock lock(cancellation_->mu_);
    cancellation_->context_ = &context;
    // gRPC remembers this until the call starts.
    if (cancellation_->cancelled_) context.TryCancel();
  }
  ~CancellationScope() {
    if (cancellation_ == nullptr) return;
    MutexLock lock(cancellation_->mu_);
    cancellation_->context_ = nullptr;
  }
  CancellationScope(const CancellationScope&) = delete;
  CancellationScope& operator=(const CancellationScope&) = delete;

 private:
  Cancellation* const cancellation_;
};

struct Client::Impl {
  // One unary call. `timeout_ms` 0: none.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(
      Stub& stub,
      grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                   Response*),
      const Request& request, int64_t timeout_ms) {
    grpc::ClientContext context;
    if (timeout_ms > 0) context.set_deadline(After(timeout_ms));
    Response response;
    const grpc::Status status = (stub.*method)(&context, request, &response);
    if (!status.ok()) return FromGrpc(status);
    return response;
  }

  // One call that answers with a stream.
  template <typename Request, typename Response>
  absl::Status Stream(std::unique_ptr<grpc::ClientReader<Response>> (
                          v1::Inference::Stub::*method)(grpc::ClientContext*,
                                                        const Request&),
                      const Request& request,
                      absl::FunctionRef<bool(const Response&)> on_message,
                      Cancellation* cancellation) {
    grpc::ClientContext context;
    CancellationScope scope(cancellation, context);
    auto reader = ((*inference).*method)(&context, request);
    Response message;
    bool go_on = true;
    while (go_on && reader->Read(&message)) go_on = on_message(message);
    if (go_on) return FromGrpc(reader->Finish());
    context.TryCancel();
    reader->Finish();  // drops the messages that are still under way
    return absl::CancelledError("the caller wanted no more messages");
  }

  ClientOptions options;
  std::shared_ptr<grpc::Channel> channel;  // shared: with its stubs, by gRPC
  std::unique_ptr<v1::Inference::Stub> inference;
  std::unique_ptr<v1::Sessions::Stub> sessions;
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(
    const ClientOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  auto channel = grpc::CreateCustomChannel(
      options.address, grpc::InsecureChannelCredentials(), arguments);
  const auto deadline = After(options.connect_timeout_ms);
  grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/true);
  while (state != GRPC_CHANNEL_READY) {
    // gRPC would try again for ever. A refusal at every address is an answer,
    // though, and a user should not wait for it.
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) {
      return absl::UnavailableError("no server at " + options.address);
    }
    if (!channel->WaitForStateChange(state, deadline)) {
      return absl::UnavailableError(
          "no answer from " + options.address + " within " +
          std::to_string(options.connect_timeout_ms) + " ms");
    }
    state = channel->GetState(/*try_to_connect=*/true);
  }
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->inference = v1::Inference::NewStub(channel);
  impl->sessions = v1::Sessions::NewStub(channel);
  impl->channel = std::move(channel);
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

absl::Status Client::Generate(const v1::GenerateRequest& request,
                              OnMessage on_message,
                              Cancellation* cancellation) {
  return impl_->Stream<v1::GenerateRequest, v1::GenerateResponse>(
      &v1::Inference::Stub::Generate, request, on_message, cancellation);
}

absl::Status Client::Score(const v1::ScoreRequest& request, OnScores on_message,
                           Cancellation* cancellation) {
  return impl_->Stream<v1::ScoreRequest, v1::ScoreResponse>(
      &v1::Inference::Stub::Score, request, on_message, cancellation);
}

absl::StatusOr<v1::TokenizeResponse> Client::Tokenize(
    const v1::TokenizeRequest& request) {
  return impl_->Call(*impl_->inference, &v1::Inference::Stub::Tokenize, request,
                     impl_->options.call_timeout_ms);
}

absl::StatusOr<v1::DetokenizeResponse> Client::Detokenize(
    const v1::DetokenizeRequest& request) {
  return impl_->Call(*impl_->inference, &v1::Inference::Stub::Detokenize,
                     request, impl_->options.call_timeout_ms);
}

absl::StatusOr<v1::Model> Client::GetModel() {
  return impl_->Call(*impl_->inference, &v1::Inference::Stub::GetModel,
                     v1::GetModelRequest(), impl_->options.call_timeout_ms);
}

absl::StatusOr<v1::Session> Client::CreateSession(
    const v1::CreateSessionRequest& request) {
  return impl_->Call(*impl_->sessions, &v1::Sessions::Stub::Create, request,
                     impl_->options.call_timeout_ms);
}

absl::StatusOr<v1::Session> Client::GetSession(const std::string& id) {
  v1::GetSessionRequest request;
  request.set_id(id);
  return impl_->Call(*impl_->sessions, &v1::Sessions::Stub::Get, request,
                     impl_->options.call_timeout_ms);
}

absl::StatusOr<v1::ListSessionsResponse> Client::ListSessions(
    const v1::ListSessionsRequest& request) {
  return impl_->Call(*impl_->sessions, &v1::Sessions::Stub::List, request,
                     impl_->options.call_timeout_ms);
}

absl::StatusOr<v1::AppendResponse> Client::Append(
    const v1::AppendRequest& request) {
  return impl_->Call(*impl_->sessions, &v1::Sessions::Stub::Append, request,
                     /*timeout_ms=*/0);
}

absl::StatusOr<v1::Session> Client::SuspendSession(const std::string& id) {
  v1::SuspendSessionRequest request;
  request.set_id(id);
  return impl_->Call(*impl_->sessions, &v1::Sessions::Stub::Suspend, request,
                     /*timeout_ms=*/0);
}

absl::StatusOr<v1::ResumeSessionResponse> Client::ResumeSession(
    const std::string& id) {
  v1::ResumeSessionRequest request;
  request.set_id(id);
  return impl_->Call(*impl_->sessions, &v1::Sessions::Stub::Resume, request,
                     /*timeout_ms=*/0);
}

absl::StatusOr<v1::Session> Client::ForkSession(
    const v1::ForkSessionRequest& request) {
  return impl_->Call(*impl_->sessions, &v1::Sessions::Stub::Fork, request,
                     /*timeout_ms=*/0);
}

absl::StatusOr<v1::Session> Client::RewindSession(
    const v1::RewindSessionRequest& request) {
  return impl_->Call(*impl_->sessions, &v1::Sessions::Stub::Rewind, request,
                     /*timeout_ms=*/0);
}

absl::Status Client::DeleteSession(const std::string& id) {
  v1::DeleteSessionRequest request;
  request.set_id(id);
  return impl_
      ->Call(*impl_->sessions, &v1::Sessions::Stub::Delete, request,
             impl_->options.call_timeout_ms)
      .status();
}

absl::StatusOr<v1::Preset> Client::SavePreset(
    const v1::SavePresetRequest& request) {
  return impl_->Call(*impl_->sessions, &v1::Sessions::Stub::SavePreset, request,
                     /*timeout_ms=*/0);
}

absl::Status Client::DeletePreset(const std::string& name) {
  v1::DeletePresetRequest request;
  request.set_name(name);
  return impl_
      ->Call(*impl_->sessions, &v1::Sessions::Stub::DeletePreset, request,
             impl_->options.call_timeout_ms)
      .status();
}

absl::StatusOr<v1::ListPresetsResponse> Client::ListPresets(
    const v1::ListPresetsRequest& request) {
  return impl_->Call(*impl_->sessions, &v1::Sessions::Stub::ListPresets,
                     request, impl_->options.call_timeout_ms);
}

absl::StatusOr<v1::Session> Client::TouchSession(
    const v1::TouchSessionRequest& request) {
  return impl_->Call(*impl_->sessions, &v1::Sessions::Stub::Touch, request,
                     impl_->options.call_timeout_ms);
}

}  // namespace reprise
