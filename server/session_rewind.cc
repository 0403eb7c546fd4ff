// Going back to an earlier revision of a session.
#include <utility>

#include "engine/base/status_macros.h"
#include "server/session_manager_impl.h"
#include "server/session_shared.h"

namespace reprise {

absl::StatusOr<std::string> SessionManager::Impl::ReadRevision(
    SessionClaim& claim, uint64_t revision,
    std::optional<uint64_t> expected_revision) {
  const SessionKey& key = claim.key();
  if (!claim.stored.has_value()) {
    ASSIGN_OR_RETURN(claim.stored, store.GetEntry(key));
  }
  RETURN_IF_ERROR(
      CheckExpectedRevision(key, claim.stored->revision, expected_revision));
  RETURN_IF_ERROR(CheckQuota(key.tenant, /*new_session=*/false));
  absl::StatusOr<std::string> snapshot = store.GetSnapshot(key, revision);
  // What every session begins with need not be kept.
  if (revision == 0 && absl::IsOutOfRange(snapshot.status())) {
    return empty_snapshot;
  }
  CountFailure(SnapshotOp::kRead, snapshot.status());
  return snapshot;
}

// Claimed as for a turn: others need not wait for the store, and what needs a
// slot may not be waited for by AcquireSlot, as upkeep is.
absl::StatusOr<SessionInfo> SessionManager::Impl::Rewind(
    const SessionKey& key, uint64_t revision,
    std::optional<uint64_t> expected_revision) {
  ASSIGN_OR_RETURN(SessionClaim claim, table.Claim(key, ClaimFor::kTurn));
  RETURN_IF_ERROR(DropIfOutdated(store, cache, claim));
  ASSIGN_OR_RETURN(const bool expired, DropIfExpired(claim));
  if (expired) return NoSuchSessionError(key);
  const absl::StatusOr<std::string> snapshot =
      ReadRevision(claim, revision, expected_revision);
  if (!snapshot.ok()) {
    if (claim.slot) table.MakeResident(std::move(claim));
    return snapshot.status();
  }
  // A slot must be zeroed before a state is read into it, so the session gives
  // its own back and takes another.
  claim.slot = StateSlot();
  const absl::Status status = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(claim.slot, AcquireSlot());
    ASSIGN_OR_RETURN(claim.record,
                     Decode(key, *snapshot, revision, claim.slot));
    const absl::Status written =
        WriteCommit(claim, /*request=*/{}, /*outcome=*/"");
    CountFailure(SnapshotOp::kWrite, written);
    return written;
  }();
  cache.Erase(key);
  if (!status.ok()) {
    cache.Note(key, "its last rewind failed");
    return status;
  }
  claim.last_used_ns = clock.MonotonicNs();
  SessionInfo info{*claim.stored, SessionPlace::kResident};
  table.MakeResident(std::move(claim));
  return info;
}

absl::StatusOr<SessionInfo> SessionManager::Rewind(
    const SessionKey& key, uint64_t revision,
    std::optional<uint64_t> expected_revision) {
  absl::StatusOr<SessionInfo> info =
      impl_->Rewind(key, revision, expected_revision);
  impl_->metrics.CountSessionOp(SessionOp::kRewind, info.ok());
  impl_->UpdateGauges();
  return info;
}

}  // namespace reprise
