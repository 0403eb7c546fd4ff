// How a session comes to a slot, and leaves it.
#include <limits>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "server/session_manager_impl.h"
#include "server/session_shared.h"

namespace reprise {
namespace {

constexpr char kOutOfSlots[] = "reprise/out_of_slots";  // a status's payload

}  // namespace

bool IsOutOfSlots(const absl::Status& status) {
  return status.GetPayload(kOutOfSlots).has_value();
}

absl::Status CheckExpectedRevision(const SessionKey& key, uint64_t revision,
                                   std::optional<uint64_t> expected) {
  if (!expected.has_value() || *expected == revision) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("session ", key.id, " is at revision ",
                                         revision, ", expected_revision is ",
                                         *expected));
}

absl::StatusOr<SessionManager::Impl::Resumed> SessionManager::Impl::Resume(
    SessionClaim& claim, const AcquireOptions& acquire) {
  RETURN_IF_ERROR(DropIfOutdated(store, cache, claim));
  if (!claim.slot) return Load(claim, acquire);
  if (Expired(*claim.stored)) {
    claim.slot = StateSlot();
    claim.stored.reset();
    return Load(claim, acquire);  // which finds it expired, and deletes it
  }
  ASSIGN_OR_RETURN(std::optional<TurnOutcome> outcome,
                   Admit(claim.key(), *claim.stored, acquire));
  if (outcome.has_value()) return Resumed{.repeated = std::move(outcome)};
  return Resumed{ResumeSource::kSlot, ""};
}

absl::StatusOr<std::optional<TurnOutcome>> SessionManager::Impl::Admit(
    const SessionKey& key, const StoredSession& stored,
    const AcquireOptions& acquire) {
  const RequestIdentity& request = acquire.request;
  if (request.id.empty() || request.id != stored.request_id) {
    RETURN_IF_ERROR(
        CheckExpectedRevision(key, stored.revision, acquire.expected_revision));
    if (acquire.commit) {
      RETURN_IF_ERROR(CheckQuota(key.tenant, /*new_session=*/false));
    }
    return std::nullopt;
  }
  const std::string which =
      absl::StrCat("request_id: ", absl::CHexEscape(request.id),
                   " made revision ", stored.revision, " of session ", key.id);
  if (request.fingerprint != stored.request_fingerprint) {
    return absl::InvalidArgumentError(
        absl::StrCat(which, " by another request than this one"));
  }
  // Each commit counts up by one.
  const uint64_t before = stored.revision - 1;
  if (acquire.expected_revision.value_or(before) != before) {
    return absl::InvalidArgumentError(
        absl::StrCat(which, " from revision ", before,
                     ", expected_revision is ", *acquire.expected_revision));
  }
  const absl::StatusOr<std::string> bytes =
      store.GetOutcome(key, stored.revision);
  CountFailure(SnapshotOp::kRead, bytes.status());
  RETURN_IF_ERROR(bytes.status());
  ASSIGN_OR_RETURN(TurnOutcome outcome, DecodeOutcome(*bytes));
  if (!outcome.whole()) {
    return absl::FailedPreconditionError(absl::StrCat(
        which, "; its answer had ", outcome.answer_bytes,
        " bytes, more than are kept to be repeated, ", kMaxOutcomeBytes));
  }
  outcome.revision = stored.revision;
  return outcome;
}

absl::StatusOr<SessionManager::Impl::Resumed> SessionManager::Impl::Load(
    SessionClaim& claim, const AcquireOptions& acquire) {
  const SessionKey& key = claim.key();
  absl::StatusOr<Snapshot> snapshot = FindSnapshot(key, /*in_memory=*/true);
  if (snapshot.ok() && Expired(snapshot->stored)) {
    ASSIGN_OR_RETURN(const int64_t deleted, DeleteExpired({&key, 1}));
    snapshot = deleted == 1 ? NoSuchSessionError(key)
                            : FindSnapshot(key, /*in_memory=*/false);
  }
  if (absl::IsNotFound(snapshot.status()) && acquire.create) {
    return StartNew(claim, acquire);
  }
  RETURN_IF_ERROR(snapshot.status());
  ASSIGN_OR_RETURN(std::optional<TurnOutcome> outcome,
                   Admit(key, snapshot->stored, acquire));
  if (outcome.has_value()) return Resumed{.repeated = std::move(outcome)};
  ASSIGN_OR_RETURN(claim.slot, AcquireSlot());
  const auto decode = [&] {
    return Decode(key, *snapshot->bytes, snapshot->stored.revision, claim.slot);
  };
  absl::StatusOr<SessionRecord> record = decode();
  if (!record.ok() && snapshot->resumed.source == ResumeSource::kMemory) {
    LogError("snapshot in memory is damaged; reading the stored one",
             {{"reason", FromAbsl(record.status().message())}});
    cache.Erase(key);
    ASSIGN_OR_RETURN(*snapshot, FindSnapshot(key, /*in_memory=*/false));
    claim.slot = StateSlot();  // it may hold a part of the damaged one
    ASSIGN_OR_RETURN(claim.slot, AcquireSlot());
    record = decode();
  }
  RETURN_IF_ERROR(record.status());
  claim.record = *std::move(record);
  claim.stored = std::move(snapshot->stored);
  // A session that was created and not used yet has nothing to resume.
  const bool empty = !claim.record.pending_token.has_value();
  if (empty) return Resumed{ResumeSource::kNone, "new session"};
  return std::move(snapshot->resumed);
}

absl::StatusOr<SessionManager::Impl::Resumed> SessionManager::Impl::StartNew(
    SessionClaim& claim, const AcquireOptions& acquire) {
  if (acquire.expected_revision.value_or(0) != 0) {
    return absl::AbortedError(absl::StrCat(
        "session ", claim.key().id, " does not exist, expected_revision is ",
        *acquire.expected_revision));
  }
  if (acquire.commit) {
    RETURN_IF_ERROR(CheckRoomForOne());
    RETURN_IF_ERROR(CheckQuota(claim.key().tenant, /*new_session=*/true));
  }
  ASSIGN_OR_RETURN(claim.slot, AcquireSlot());
  claim.record = SessionRecord();
  return Resumed{ResumeSource::kNone, "new session"};
}

absl::StatusOr<SessionManager::Impl::Snapshot>
SessionManager::Impl::FindSnapshot(const SessionKey& key, bool in_memory) {
  const std::optional<SessionCache::Cached> cached = cache.Find(key);
  if (in_memory && cached.has_value() && cached->snapshot != nullptr) {
    return Snapshot{cached->stored,
                    cached->snapshot,
                    {ResumeSource::kMemory, cached->note}};
  }
  Snapshot found;
  std::string bytes;
  const absl::Status status = store.Get(key, &found.stored, &bytes);
  CountFailure(SnapshotOp::kRead, status);
  RETURN_IF_ERROR(status);
  found.bytes = std::make_shared<const std::string>(std::move(bytes));
  found.resumed.source = ResumeSource::kStore;
  if (cached.has_value()) {
    found.resumed.reason = cached->note;
  } else {
    // Of a store that others use it is not known which of the two it was.
    found.resumed.reason = store.shared()
                               ? "another server's, or from before a restart"
                               : "server restarted";
    if (!cache.complete()) {
      found.resumed.reason += ", or not used for a long time";
    }
  }
  return found;
}

absl::StatusOr<SessionRecord> SessionManager::Impl::Decode(
    const SessionKey& key, std::string_view snapshot, uint64_t revision,
    StateSlot& slot) {
  absl::StatusOr<SessionRecord> record =
      DecodeSnapshot(snapshot, fingerprints, layout, vocab_size, slot.bytes());
  if (record.ok() && record->revision != revision) {
    record = absl::DataLossError(
        absl::StrCat(Describe(key), ": its snapshot is of revision ",
                     record->revision, ", its entry of ", revision));
  }
  CountFailure(SnapshotOp::kRead, record.status());
  return record;
}

absl::StatusOr<StateSlot> SessionManager::Impl::AcquireSlot() {
  while (true) {
    absl::StatusOr<StateSlot> slot = pool->Acquire();
    if (slot.ok()) return slot;
    std::optional<SessionClaim> oldest =
        table.ClaimOldest(std::numeric_limits<int64_t>::max());
    if (oldest.has_value()) {
      PutAway(*std::move(oldest), "its slot was needed for another session");
    } else if (!table.WaitForUpkeep()) {
      // Once more: the last upkeep may have ended after the first try.
      slot = pool->Acquire();
      if (slot.ok()) return slot;
      absl::Status status = absl::ResourceExhaustedError(absl::StrCat(
          "all ", options.num_slots, " slots are leased by running turns"));
      status.SetPayload(kOutOfSlots, absl::Cord());
      return status;
    }
  }
}

void SessionManager::Impl::PutAway(SessionClaim claim,
                                   const std::string& note) {
  const int64_t start_ns = clock.MonotonicNs();
  if (cache.Fits(claim.stored->snapshot_bytes)) {
    std::string bytes =
        EncodeSnapshot(fingerprints, claim.record, layout, claim.slot.bytes());
    const auto size = static_cast<int64_t>(bytes.size());
    cache.Put(claim.key(), *claim.stored, std::move(bytes), note);
    metrics.ObserveSnapshotWrite(
        "memory", SecondsBetween(start_ns, clock.MonotonicNs()), size);
  } else {
    cache.Note(claim.key(), note);
  }
  metrics.CountSessionOp(SessionOp::kSuspend, /*ok=*/true);
}

}  // namespace reprise
