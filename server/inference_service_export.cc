#include "server/inference_service_export.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "server/inference_service_request.h"
#include "server/inference_service_response.h"

namespace reprise {
namespace {

// Large enough that a message costs little, small enough to be taken by every
// client (4 MiB at most by default) and to be sent in a moment.
constexpr size_t kChunkBytes = 64 << 10;

}  // namespace

grpc::ServerWriteReactor<v1::SnapshotChunk>* ExportCall::Start(
    ServiceContext& context, grpc::CallbackServerContext* rpc,
    const v1::ExportSessionRequest* request) {
  const auto call = std::make_shared<ExportCall>(context, rpc, request);
  if (call->Enter()) {
    context.executor.Run([call] {
      const absl::Status status = call->Prepare();
      if (!status.ok()) return call->FinishOnce(status);
      call->WriteNext();
    });
  }
  return call.get();
}

absl::Status ExportCall::Prepare() {
  RETURN_IF_ERROR(ValidateSessionId(request_->id(), "id"));
  ASSIGN_OR_RETURN(const SealOptions options,
                   ToSealOptions(request_->seal(), "seal"));
  ASSIGN_OR_RETURN(
      sealed_, context_.sessions.client_states().Export(
                   SessionKey{context_.options.tenant, request_->id()}, options,
                   ExpectedRevisionOf(*request_)));
  share_ = std::move(sealed_.share);
  Fill(sealed_, *chunk_.mutable_info());
  return absl::OkStatus();
}

void ExportCall::WriteNext() {
  const size_t size = std::min(kChunkBytes, sealed_.bytes.size() - sent_);
  chunk_.set_data(sealed_.bytes.data() + sent_, size);
  sent_ += size;
  if (sent_ == sealed_.bytes.size()) chunk_.set_crc32c(Crc32c(sealed_.bytes));
  WaitForClient();
  StartWrite(&chunk_);
}

void ExportCall::OnWriteDone(bool ok) {
  ClientCame();
  if (!ok) return FinishOnce(absl::CancelledError("the client went away"));
  chunk_.Clear();
  if (sent_ == sealed_.bytes.size()) return FinishOnce(absl::OkStatus());
  WriteNext();
}

}  // namespace reprise
