#include "server/client_states.h"

#include <algorithm>
#include <limits>
#include <random>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/state/snapshot_format.h"
#include "server/session_manager_impl.h"

namespace reprise {
namespace {

// The revision stands in the seal too, for clients that are told of it; it must
// be the same.
absl::Status CheckRevision(const SessionRecord& record,
                           const SealLabel& label) {
  if (record.revision == label.revision) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("snapshot: is of revision ",
                                          record.revision, ", its seal says ",
                                          label.revision));
}

}  // namespace

std::string DrawSessionId() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 4; ++i) {
    absl::StrAppend(&id, absl::Hex(device(), absl::kZeroPad8));
  }
  return id;
}

ClientStates::ClientStates(SessionManager& sessions,
                           std::shared_ptr<const SealKeys> keys,
                           int64_t seal_ttl_ms, int64_t sealed_memory_bytes)
    : sessions_(sessions),
      keys_(std::move(keys)),
      seal_ttl_ms_(seal_ttl_ms),
      sealed_bytes_(sealed_memory_bytes) {}

// ---- Giving out -------------------------------------------------------------

absl::StatusOr<SealedState> ClientStates::SealBytes(const SessionKey& from,
                                                    const SessionRecord& record,
                                                    const SealOptions& options,
                                                    std::string_view snapshot) {
  const SessionManager::Impl& impl = *sessions_.impl_;
  SealedState sealed;
  sealed.tokens = NumTokens(record);
  sealed.encoding = options.encoding;
  SealLabel& label = sealed.label;
  label.tenant = from.tenant;
  label.session = from.id;
  label.model = impl.fingerprints.model;
  label.revision = record.revision;
  label.created_unix_ms = impl.clock.UnixMs();
  int64_t ttl_ms = options.ttl_ms.value_or(0);
  if (seal_ttl_ms_ > 0) {
    ttl_ms = ttl_ms > 0 ? std::min(ttl_ms, seal_ttl_ms_) : seal_ttl_ms_;
  }
  if (ttl_ms > 0) label.expires_unix_ms = label.created_unix_ms + ttl_ms;
  const auto bytes =
      static_cast<int64_t>(SealedBytes(*keys_, label, snapshot.size()));
  sealed.share = ByteBudget::Share(sealed_bytes_);
  if (!sealed.share.Add(bytes)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the state has ", bytes,
        " bytes when sealed; with those of other calls that is more than may "
        "be on the way at once, ",
        sealed_bytes_.limit(), " (sealed_memory)"));
  }
  ASSIGN_OR_RETURN(sealed.bytes, SealSnapshot(*keys_, label, snapshot));
  impl.metrics.ObserveSnapshotSize(options.encoding,
                                   static_cast<int64_t>(snapshot.size()));
  return sealed;
}

absl::StatusOr<SealedState> ClientStates::Export(
    const SessionKey& key, const SealOptions& options,
    std::optional<uint64_t> expected_revision) {
  SessionManager::Impl& impl = *sessions_.impl_;
  const auto work = [&]() -> absl::StatusOr<SealedState> {
    StoredSession stored;
    std::string snapshot;
    RETURN_IF_ERROR(
        impl.ReadCommitted(key, expected_revision, &stored, &snapshot));
    absl::StatusOr<RecodedSnapshot> recoded =
        RecodeSnapshot(snapshot, impl.fingerprints, impl.layout,
                       impl.vocab_size, options.encoding);
    impl.CountFailure(SnapshotOp::kRead, recoded.status());
    RETURN_IF_ERROR(recoded.status());
    return SealBytes(key, recoded->record, options, recoded->bytes);
  };
  absl::StatusOr<SealedState> sealed = work();
  impl.metrics.CountSessionOp(SessionOp::kExport, sealed.ok());
  return sealed;
}

absl::StatusOr<SealedState> ClientStates::Seal(const SessionKey& from,
                                               const SessionLease& lease,
                                               const SealOptions& options) {
  const SessionManager::Impl& impl = *sessions_.impl_;
  SessionRecord record = lease.record();
  record.revision += 1;
  const std::span<const std::byte> slot = lease.slot_.bytes();
  RETURN_IF_ERROR(CheckSession(record, impl.layout, impl.vocab_size, slot));
  return SealBytes(from, record, options,
                   EncodeSnapshot(impl.fingerprints, record, impl.layout, slot,
                                  options.encoding));
}

// ---- Taking back ------------------------------------------------------------

absl::StatusOr<OpenedSnapshot> ClientStates::Open(std::string_view tenant,
                                                  std::string_view sealed) {
  SessionManager::Impl& impl = *sessions_.impl_;
  absl::StatusOr<OpenedSnapshot> opened =
      OpenSnapshot(*keys_, sealed,
                   {.tenant = tenant,
                    .model = impl.fingerprints.model,
                    .now_unix_ms = impl.clock.UnixMs()});
  impl.CountFailure(SnapshotOp::kOpen, opened.status());
  return opened;
}

absl::StatusOr<SessionInfo> ClientStates::ImportOpened(
    const ImportTarget& target, const OpenedSnapshot& opened) {
  SessionManager::Impl& impl = *sessions_.impl_;
  SessionKey key{target.tenant, target.id.value_or(opened.label.session)};
  if (key.id.empty()) key.id = DrawSessionId();
  RETURN_IF_ERROR(ValidateSessionId(key.id, "session_id"));
  // As stores hold them: every bit, and nothing to be unpacked.
  absl::StatusOr<RecodedSnapshot> recoded =
      RecodeSnapshot(opened.snapshot, impl.fingerprints, impl.layout,
                     impl.vocab_size, SnapshotEncoding());
  absl::Status status = recoded.status();
  if (status.ok()) status = CheckRevision(recoded->record, opened.label);
  impl.CountFailure(SnapshotOp::kOpen, status);
  RETURN_IF_ERROR(status);
  StoredSession stored;
  stored.revision = recoded->record.revision;
  stored.tokens = NumTokens(recoded->record);
  stored.ttl_ms = target.ttl_ms;
  if (opened.label.session != key.id) stored.forked_from = opened.label.session;
  return impl.PutNew(key, std::move(stored), recoded->bytes,
                     "first turn since its import");
}

absl::StatusOr<SessionInfo> ClientStates::Import(const ImportTarget& target,
                                                 std::string_view sealed) {
  SessionManager::Impl& impl = *sessions_.impl_;
  const auto work = [&]() -> absl::StatusOr<SessionInfo> {
    ASSIGN_OR_RETURN(const OpenedSnapshot opened, Open(target.tenant, sealed));
    return ImportOpened(target, opened);
  };
  absl::StatusOr<SessionInfo> info = work();
  impl.metrics.CountSessionOp(SessionOp::kImport, info.ok());
  impl.UpdateGauges();
  return info;
}

absl::StatusOr<SessionLease> ClientStates::Acquire(
    const OpenedSnapshot& opened) {
  SessionManager::Impl& impl = *sessions_.impl_;
  const int64_t start_ns = impl.clock.MonotonicNs();
  ASSIGN_OR_RETURN(StateSlot slot, impl.AcquireSlot());
  absl::StatusOr<SessionRecord> record =
      DecodeSnapshot(opened.snapshot, impl.fingerprints, impl.layout,
                     impl.vocab_size, slot.bytes());
  absl::Status status = record.status();
  if (status.ok()) status = CheckRevision(*record, opened.label);
  impl.CountFailure(SnapshotOp::kOpen, status);
  RETURN_IF_ERROR(status);
  return sessions_.MakeStateless(std::move(slot), *std::move(record),
                                 ResumeSource::kClient, "the client's snapshot",
                                 start_ns);
}

uint64_t ClientStates::most_sealed_bytes() const {
  const SessionManager::Impl& impl = *sessions_.impl_;
  constexpr uint64_t kSealBytes = 1024;  // its header and tag
  constexpr uint64_t kWindowBytes = kMaxWindow * sizeof(int32_t);
  // At most every token of the vocabulary occurred.
  const uint64_t plain =
      impl.empty_snapshot.size() + impl.layout.slot_bytes() + kWindowBytes +
      static_cast<uint64_t>(impl.vocab_size) * kOccurrenceBytes;
  // What cannot be compressed grows by less than 1/256 and a little.
  return kSealBytes + plain + plain / 256 + 1024;
}

}  // namespace reprise
