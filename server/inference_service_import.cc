#include "server/inference_service_import.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "server/inference_service_request.h"
#include "server/inference_service_response.h"
#include "server/seal.h"

namespace reprise {

grpc::ServerReadReactor<v1::SnapshotChunk>* ImportCall::Start(
    ServiceContext& context, grpc::CallbackServerContext* rpc,
    v1::Session* response) {
  const auto call = std::make_shared<ImportCall>(context, rpc, response);
  if (call->Enter()) call->ReadNext();
  return call.get();
}

ImportCall::ImportCall(ServiceContext& context,
                       grpc::CallbackServerContext* rpc, v1::Session* response)
    : TransferCall(context, rpc),
      response_(response),
      most_bytes_(static_cast<int64_t>(
          context.sessions.client_states().most_sealed_bytes())) {
  target_.tenant = context.options.tenant;
}

void ImportCall::ReadNext() {
  WaitForClient();
  StartRead(&chunk_);
}

void ImportCall::OnReadDone(bool ok) {
  ClientCame();
  if (ok) {
    const absl::Status status = TakeChunk();
    if (!status.ok()) return FinishOnce(status);
    return ReadNext();
  }
  // The end of the stream, or of the connection.
  if (rpc_->IsCancelled()) {
    return FinishOnce(absl::CancelledError("the client went away"));
  }
  context_.executor.Run(
      [this, held = shared_from_this()] { FinishOnce(Store()); });
}

absl::Status ImportCall::TakeChunk() {
  if (std::exchange(first_, false)) {
    RETURN_IF_ERROR(TakeTarget());
  } else if (chunk_.has_session_id() || chunk_.has_ttl_ms()) {
    return absl::InvalidArgumentError(
        "session_id, ttl_ms: belong into the first chunk");
  }
  if (crc32c_.has_value()) {
    return absl::InvalidArgumentError(
        "crc32c: was in a chunk that is not the last");
  }
  if (chunk_.has_crc32c()) crc32c_ = chunk_.crc32c();
  const auto more = static_cast<int64_t>(chunk_.data().size());
  if (more == 0 && !crc32c_.has_value()) {
    return absl::InvalidArgumentError(
        "data: has 0 bytes; only the chunk with crc32c may be empty");
  }
  const auto bytes = static_cast<int64_t>(bytes_.size()) + more;
  if (bytes > most_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("snapshot: has more than ", most_bytes_,
                     " bytes, the most that a session of this model takes"));
  }
  if (!share_.Add(2 * more)) {  // as they came, and opened
    return absl::ResourceExhaustedError(
        absl::StrCat("snapshot: its first ", bytes,
                     " bytes, counted twice, with those of other calls, are "
                     "more than may be on the way at once, ",
                     context_.sessions.client_states().sealed_bytes().limit(),
                     " (sealed_memory)"));
  }
  bytes_ += chunk_.data();
  return absl::OkStatus();
}

absl::Status ImportCall::TakeTarget() {
  if (chunk_.has_session_id()) {
    RETURN_IF_ERROR(ValidateSessionId(chunk_.session_id(), "session_id"));
    target_.id = chunk_.session_id();
  }
  if (chunk_.has_ttl_ms()) {
    RETURN_IF_ERROR(ValidateTtl(chunk_.ttl_ms(), "ttl_ms", /*least=*/1));
    target_.ttl_ms = static_cast<int64_t>(chunk_.ttl_ms());
  }
  return absl::OkStatus();
}

absl::Status ImportCall::Store() {
  if (!crc32c_.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("crc32c: is in no chunk, the stream ended after ",
                     bytes_.size(), " bytes"));
  }
  // Something else than a seal is not a damaged one, whatever its checksum.
  RETURN_IF_ERROR(CheckBeginsAsSeal(bytes_));
  if (Crc32c(bytes_) != *crc32c_) {
    return absl::DataLossError(
        absl::StrCat("snapshot: its ", bytes_.size(),
                     " bytes are not those that crc32c was made of"));
  }
  ASSIGN_OR_RETURN(const SessionInfo info,
                   context_.sessions.client_states().Import(target_, bytes_));
  Fill(info, *response_);
  return absl::OkStatus();
}

}  // namespace reprise
