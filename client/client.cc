#include "client/client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <optional>
#include <utility>

#include "client/client_addresses.h"
#include "client/client_connection.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "proto/inference.grpc.pb.h"

namespace reprise {
namespace {

std::chrono::system_clock::time_point After(int64_t milliseconds) {
  return std::chrono::system_clock::now() +
         std::chrono::milliseconds(milliseconds);
}

}  // namespace

struct Client::Impl {
  Impl(const ClientOptions& options, ConnectionOptions connection)
      : options(options), connections(std::move(connection)) {}

  // One unary call. `timeout_ms` 0: none.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(
      grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                   Response*),
      const Request& request, int64_t timeout_ms) {
    ASSIGN_OR_RETURN(const auto connection, connections.Get());
    grpc::ClientContext context;
    if (timeout_ms > 0) context.set_deadline(After(timeout_ms));
    Response response;
    Stub& stub = connection->stub(static_cast<Stub*>(nullptr));
    RETURN_IF_ERROR(connections.Result(
        connection, (stub.*method)(&context, request, &response)));
    return response;
  }

  // One that changes nothing, and may be made once more.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Ask(
      grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                   Response*),
      const Request& request) {
    const int64_t timeout_ms = options.call_timeout_ms;
    absl::StatusOr<Response> response = Call(method, request, timeout_ms);
    if (!absl::IsUnavailable(response.status())) return response;
    return Call(method, request, timeout_ms);
  }

  // One call that answers with a stream.
  template <typename Request, typename Response>
  absl::Status Stream(std::unique_ptr<grpc::ClientReader<Response>> (
                          v1::Inference::Stub::*method)(grpc::ClientContext*,
                                                        const Request&),
                      const Request& request,
                      absl::FunctionRef<bool(const Response&)> on_message,
                      Cancellation* cancellation) {
    ASSIGN_OR_RETURN(const auto connection, connections.Get());
    grpc::ClientContext context;
    CancellationScope scope(cancellation, context);
    auto reader = (*connection->inference.*method)(&context, request);
    Response message;
    bool go_on = true;
    while (go_on && reader->Read(&message)) go_on = on_message(message);
    if (go_on) return connections.Result(connection, reader->Finish());
    context.TryCancel();
    reader->Finish();  // drops the messages that are still under way
    return absl::CancelledError("the caller wanted no more messages");
  }

  const ClientOptions options;
  Connections connections;
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(
    const ClientOptions& options) {
  ConnectionOptions connection;
  ASSIGN_OR_RETURN(connection.addresses, ParseAddresses(options.address));
  connection.connect_timeout_ms = options.connect_timeout_ms;
  connection.keepalive_ms = options.keepalive_ms;
  auto impl = std::make_unique<Impl>(options, std::move(connection));
  RETURN_IF_ERROR(impl->connections.Get().status());
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

std::string Client::address() const { return impl_->connections.address(); }

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
  return impl_->Ask(&v1::Inference::Stub::Tokenize, request);
}

absl::StatusOr<v1::DetokenizeResponse> Client::Detokenize(
    const v1::DetokenizeRequest& request) {
  return impl_->Ask(&v1::Inference::Stub::Detokenize, request);
}

absl::StatusOr<v1::Model> Client::GetModel() {
  return impl_->Ask(&v1::Inference::Stub::GetModel, v1::GetModelRequest());
}

absl::StatusOr<v1::Session> Client::CreateSession(
    const v1::CreateSessionRequest& request) {
  return impl_->Call(&v1::Sessions::Stub::Create, request,
                     impl_->options.call_timeout_ms);
}

absl::StatusOr<v1::Session> Client::GetSession(
    const std::string& id, std::optional<int64_t> timeout_ms) {
  v1::GetSessionRequest request;
  request.set_id(id);
  if (timeout_ms.has_value()) {
    return impl_->Call(&v1::Sessions::Stub::Get, request, *timeout_ms);
  }
  return impl_->Ask(&v1::Sessions::Stub::Get, request);
}

absl::StatusOr<v1::ListSessionsResponse> Client::ListSessions(
    const v1::ListSessionsRequest& request) {
  return impl_->Ask(&v1::Sessions::Stub::List, request);
}

absl::StatusOr<v1::AppendResponse> Client::Append(
    const v1::AppendRequest& request) {
  return impl_->Call(&v1::Sessions::Stub::Append, request,
                     /*timeout_ms=*/0);
}

absl::StatusOr<v1::Session> Client::SuspendSession(const std::string& id) {
  v1::SuspendSessionRequest request;
  request.set_id(id);
  return impl_->Call(&v1::Sessions::Stub::Suspend, request,
                     /*timeout_ms=*/0);
}

absl::StatusOr<v1::ResumeSessionResponse> Client::ResumeSession(
    const std::string& id) {
  v1::ResumeSessionRequest request;
  request.set_id(id);
  return impl_->Call(&v1::Sessions::Stub::Resume, request,
                     /*timeout_ms=*/0);
}

absl::StatusOr<v1::Session> Client::ForkSession(
    const v1::ForkSessionRequest& request) {
  return impl_->Call(&v1::Sessions::Stub::Fork, request,
                     /*timeout_ms=*/0);
}

absl::StatusOr<v1::Session> Client::RewindSession(
    const v1::RewindSessionRequest& request) {
  return impl_->Call(&v1::Sessions::Stub::Rewind, request,
                     /*timeout_ms=*/0);
}

absl::StatusOr<v1::SealedSnapshot> Client::ExportSession(
    const v1::ExportSessionRequest& request) {
  ASSIGN_OR_RETURN(const auto connection, impl_->connections.Get());
  grpc::ClientContext context;
  auto reader = connection->sessions->Export(&context, request);
  v1::SealedSnapshot sealed;
  v1::SnapshotChunk chunk;
  std::optional<uint32_t> crc32c;
  while (reader->Read(&chunk)) {
    if (chunk.has_info()) *sealed.mutable_info() = chunk.info();
    sealed.mutable_data()->append(chunk.data());
    if (chunk.has_crc32c()) crc32c = chunk.crc32c();
  }
  RETURN_IF_ERROR(impl_->connections.Result(connection, reader->Finish()));
  if (crc32c == Crc32c(sealed.data())) return sealed;
  return absl::DataLossError(
      "the session came with another checksum than its bytes have");
}

absl::StatusOr<v1::Session> Client::ImportSession(
    std::string_view sealed, const v1::SnapshotChunk& target) {
  constexpr size_t kChunkBytes = 64 << 10;
  ASSIGN_OR_RETURN(const auto connection, impl_->connections.Get());
  grpc::ClientContext context;
  v1::Session session;
  auto writer = connection->sessions->Import(&context, &session);
  v1::SnapshotChunk chunk;
  if (target.has_session_id()) chunk.set_session_id(target.session_id());
  if (target.has_ttl_ms()) chunk.set_ttl_ms(target.ttl_ms());
  const uint32_t crc32c = Crc32c(sealed);
  bool more = true;
  while (more) {
    const std::string_view part = sealed.substr(0, kChunkBytes);
    sealed.remove_prefix(part.size());
    more = !sealed.empty();
    chunk.set_data(part.data(), part.size());
    if (!more) chunk.set_crc32c(crc32c);
    // A server that refuses does not read on, and says why at the end.
    if (!writer->Write(chunk)) break;
    chunk.Clear();
  }
  writer->WritesDone();
  RETURN_IF_ERROR(impl_->connections.Result(connection, writer->Finish()));
  return session;
}

absl::Status Client::DeleteSession(const std::string& id) {
  v1::DeleteSessionRequest request;
  request.set_id(id);
  return impl_
      ->Call(&v1::Sessions::Stub::Delete, request,
             impl_->options.call_timeout_ms)
      .status();
}

absl::StatusOr<v1::Preset> Client::SavePreset(
    const v1::SavePresetRequest& request) {
  return impl_->Call(&v1::Sessions::Stub::SavePreset, request,
                     /*timeout_ms=*/0);
}

absl::Status Client::DeletePreset(const std::string& name) {
  v1::DeletePresetRequest request;
  request.set_name(name);
  return impl_
      ->Call(&v1::Sessions::Stub::DeletePreset, request,
             impl_->options.call_timeout_ms)
      .status();
}

absl::StatusOr<v1::ListPresetsResponse> Client::ListPresets(
    const v1::ListPresetsRequest& request) {
  return impl_->Ask(&v1::Sessions::Stub::ListPresets, request);
}

absl::StatusOr<v1::Session> Client::TouchSession(
    const v1::TouchSessionRequest& request) {
  return impl_->Ask(&v1::Sessions::Stub::Touch, request);
}

}  // namespace reprise
