// What the Sessions service asks for, and what happens to idle sessions.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "server/session_manager_impl.h"
#include "server/session_shared.h"

namespace reprise {

void RenewExpiry(int64_t now_unix_ms, StoredSession& stored) {
  stored.expires_unix_ms = stored.ttl_ms > 0 ? now_unix_ms + stored.ttl_ms : 0;
}

bool SessionManager::Impl::Expired(const StoredSession& stored) const {
  return HasExpired(stored, clock.UnixMs());
}

SessionPlace SessionManager::Impl::Place(
    const SessionKey& key,
    const std::optional<SessionTable::Seen>& seen) const {
  if (seen.has_value() && seen->state == SessionTable::Seen::State::kActive) {
    return SessionPlace::kActive;
  }
  if (seen.has_value() && seen->state == SessionTable::Seen::State::kResident) {
    return SessionPlace::kResident;
  }
  return cache.HasSnapshot(key) ? SessionPlace::kMemory
                                : SessionPlace::kSuspended;
}

// ---- New sessions -----------------------------------------------------------

absl::Status SessionManager::Impl::CheckRoomForOne() const {
  const int64_t stored = num_stored;
  if (stored < options.max_sessions) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(stored == 1 ? "there is 1 session" : "there are ",
                   stored == 1 ? "" : absl::StrCat(stored, " sessions"),
                   ", max_sessions is ", options.max_sessions));
}

absl::Status SessionManager::Impl::CheckQuota(const std::string& tenant,
                                              bool new_session) {
  const auto most_sessions = static_cast<uint64_t>(options.max_tenant_sessions);
  const auto most_bytes = static_cast<uint64_t>(options.max_tenant_bytes);
  if (most_sessions == 0 && most_bytes == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const SnapshotStore::Usage usage,
                   store.GetTenantUsage(tenant));
  if (new_session && most_sessions > 0 && usage.sessions >= most_sessions) {
    return absl::ResourceExhaustedError(
        absl::StrCat("tenant ", tenant, " has ", usage.sessions,
                     usage.sessions == 1 ? " session" : " sessions",
                     ", max_tenant_sessions is ", most_sessions));
  }
  if (most_bytes > 0 && usage.bytes >= most_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("tenant ", tenant, " has ", usage.bytes,
                     " bytes of snapshots, max_tenant_bytes is ", most_bytes,
                     "; delete sessions to go on"));
  }
  return absl::OkStatus();
}

absl::StatusOr<SessionInfo> SessionManager::Impl::PutNew(
    const SessionKey& key, StoredSession stored, const std::string& snapshot,
    const std::string& note) {
  const int64_t now_unix_ms = clock.UnixMs();
  stored.id = key.id;
  stored.snapshot_bytes = snapshot.size();
  stored.created_unix_ms = now_unix_ms;
  stored.updated_unix_ms = now_unix_ms;
  RenewExpiry(now_unix_ms, stored);
  const absl::Status exists = absl::AlreadyExistsError(
      absl::StrCat("session ", key.id, " exists already"));
  // Claimed, so that nobody looks for it while it is written.
  absl::StatusOr<SessionClaim> claim = table.Claim(key, ClaimFor::kUpkeep);
  if (absl::IsAborted(claim.status())) {
    // A turn runs on it, or is about to create it.
    const std::optional<SessionTable::Seen> seen = table.Look(key);
    const bool stored_already = seen.has_value() && seen->stored.has_value();
    return stored_already ? exists : claim.status();
  }
  RETURN_IF_ERROR(claim.status());
  RETURN_IF_ERROR(DropIfOutdated(store, cache, *claim));
  RETURN_IF_ERROR(DropIfExpired(*claim).status());
  if (claim->slot) {
    table.MakeResident(*std::move(claim));
    return exists;
  }
  RETURN_IF_ERROR(CheckRoomForOne());
  RETURN_IF_ERROR(CheckQuota(key.tenant, /*new_session=*/true));
  absl::StatusOr<StoredSession> put =
      store.Put(key, std::nullopt, stored, snapshot, {});
  if (absl::IsAborted(put.status())) return exists;
  CountFailure(SnapshotOp::kWrite, put.status());
  RETURN_IF_ERROR(put.status());
  ++num_stored;
  cache.Erase(key);
  cache.Note(key, note);
  return SessionInfo{*std::move(put), SessionPlace::kSuspended};
}

absl::StatusOr<SessionInfo> SessionManager::CreateSession(const SessionKey& key,
                                                          int64_t ttl_ms) {
  StoredSession stored;
  stored.ttl_ms = ttl_ms;
  absl::StatusOr<SessionInfo> info = impl_->PutNew(
      key, std::move(stored), impl_->empty_snapshot, "new session");
  impl_->metrics.CountSessionOp(SessionOp::kCreate, info.ok());
  impl_->UpdateGauges();
  return info;
}

absl::Status SessionManager::Impl::ReadCommitted(
    const SessionKey& key, std::optional<uint64_t> expected_revision,
    StoredSession* stored, std::string* snapshot) {
  const absl::Status status = store.Get(key, stored, snapshot);
  CountFailure(SnapshotOp::kRead, status);
  RETURN_IF_ERROR(status);
  if (Expired(*stored) &&
      Place(key, table.Look(key)) != SessionPlace::kActive) {
    return NoSuchSessionError(key);
  }
  return CheckExpectedRevision(key, stored->revision, expected_revision);
}

absl::StatusOr<SessionInfo> SessionManager::Impl::Fork(
    const SessionKey& from, const SessionKey& to,
    std::optional<uint64_t> expected_revision, std::optional<int64_t> ttl_ms) {
  StoredSession stored;
  std::string snapshot;
  RETURN_IF_ERROR(ReadCommitted(from, expected_revision, &stored, &snapshot));
  stored.forked_from = from.id;
  stored.ttl_ms = ttl_ms.value_or(stored.ttl_ms);
  stored.request_id.clear();
  stored.request_fingerprint = 0;
  return PutNew(to, std::move(stored), snapshot, "first turn since its fork");
}

absl::StatusOr<SessionInfo> SessionManager::Fork(
    const SessionKey& from, const SessionKey& to,
    std::optional<uint64_t> expected_revision, std::optional<int64_t> ttl_ms) {
  absl::StatusOr<SessionInfo> info =
      impl_->Fork(from, to, expected_revision, ttl_ms);
  impl_->metrics.CountSessionOp(SessionOp::kFork, info.ok());
  impl_->UpdateGauges();
  return info;
}

// ---- Looking ----------------------------------------------------------------

absl::StatusOr<SessionInfo> SessionManager::Get(const SessionKey& key) {
  const std::optional<SessionTable::Seen> seen = impl_->table.Look(key);
  // The place before the entry: a session that nobody works on any more is told
  // with all that was committed until then.
  SessionInfo info{.stored = {}, .place = impl_->Place(key, seen)};
  if (seen.has_value() && seen->stored.has_value() && !impl_->store.shared()) {
    info.stored = *seen->stored;
  } else {
    ASSIGN_OR_RETURN(info.stored, impl_->store.GetEntry(key));
  }
  if (impl_->Expired(info.stored) && info.place != SessionPlace::kActive) {
    return NoSuchSessionError(key);
  }
  return info;
}

absl::StatusOr<std::vector<SessionInfo>> SessionManager::List(
    std::string_view tenant, std::string_view after, int64_t limit) {
  // Expired ones are left out, and others take their place: a page that is not
  // full means that there is no other.
  std::vector<SessionInfo> infos;
  SessionKey key{std::string(tenant), std::string(after)};
  while (std::ssize(infos) < limit) {
    const int64_t wanted = limit - std::ssize(infos);
    ASSIGN_OR_RETURN(std::vector<StoredSession> page,
                     impl_->store.List(tenant, key.id, wanted));
    for (StoredSession& stored : page) {
      key.id = stored.id;
      const std::optional<SessionTable::Seen> seen = impl_->table.Look(key);
      // What was committed since the page was read.
      if (seen.has_value() && seen->stored.has_value() &&
          seen->stored->revision > stored.revision) {
        stored = *seen->stored;
      }
      const SessionPlace place = impl_->Place(key, seen);
      if (impl_->Expired(stored) && place != SessionPlace::kActive) continue;
      infos.push_back({std::move(stored), place});
    }
    if (std::ssize(page) < wanted) break;
  }
  return infos;
}

// ---- Changing ---------------------------------------------------------------

absl::StatusOr<SessionInfo> SessionManager::Suspend(const SessionKey& key) {
  {
    absl::StatusOr<SessionClaim> claim =
        impl_->table.Claim(key, ClaimFor::kUpkeep);
    if (!claim.ok()) {
      impl_->metrics.CountSessionOp(SessionOp::kSuspend, /*ok=*/false);
      return claim.status();
    }
    if (claim->slot) impl_->PutAway(*std::move(claim), "it was suspended");
  }
  impl_->UpdateGauges();
  return Get(key);
}

absl::Status SessionManager::Impl::Delete(const SessionKey& key) {
  ASSIGN_OR_RETURN(SessionClaim claim, table.Claim(key, ClaimFor::kUpkeep));
  ASSIGN_OR_RETURN(const bool expired, DropIfExpired(claim));
  if (expired) return NoSuchSessionError(key);
  cache.Erase(key);
  claim.slot = StateSlot();
  const absl::Status status = store.Delete(key);
  if (status.ok()) {
    --num_stored;
  } else if (!absl::IsNotFound(status)) {
    cache.Note(key, "deleting it failed");
  }
  return status;
}

absl::Status SessionManager::Delete(const SessionKey& key) {
  const absl::Status status = impl_->Delete(key);
  impl_->metrics.CountSessionOp(SessionOp::kDelete, status.ok());
  impl_->UpdateGauges();
  return status;
}

absl::StatusOr<SessionInfo> SessionManager::Impl::Touch(
    const SessionKey& key, std::optional<int64_t> ttl_ms) {
  absl::StatusOr<SessionClaim> claim = table.Claim(key, ClaimFor::kUpkeep);
  if (absl::IsAborted(claim.status())) {
    const std::optional<SessionTable::Seen> seen = table.Look(key);
    if (seen.has_value() && seen->stored.has_value() &&
        ttl_ms.value_or(seen->stored->ttl_ms) == seen->stored->ttl_ms) {
      return SessionInfo{*seen->stored, SessionPlace::kActive};
    }
  }
  RETURN_IF_ERROR(claim.status());
  RETURN_IF_ERROR(DropIfOutdated(store, cache, *claim));
  StoredSession stored;
  if (claim->stored.has_value()) {
    stored = *claim->stored;
  } else {
    ASSIGN_OR_RETURN(stored, store.GetEntry(key));
  }
  absl::Status status;
  if (Expired(stored)) {
    status = NoSuchSessionError(key);
  } else {
    stored.ttl_ms = ttl_ms.value_or(stored.ttl_ms);
    RenewExpiry(clock.UnixMs(), stored);
    status = store.PutEntry(key, stored.revision, stored);
  }
  if (!status.ok()) {
    // Only the store knows now what it holds.
    cache.Erase(key);
    if (!absl::IsNotFound(status)) cache.Note(key, "its last touch failed");
    return status;
  }
  cache.UpdateStored(key, stored);
  SessionInfo info{stored, SessionPlace::kSuspended};
  if (claim->slot) {
    claim->stored = std::move(stored);
    table.MakeResident(*std::move(claim));
  }
  info.place = Place(key, table.Look(key));
  return info;
}

absl::StatusOr<SessionInfo> SessionManager::Touch(
    const SessionKey& key, std::optional<int64_t> ttl_ms) {
  absl::StatusOr<SessionInfo> info = impl_->Touch(key, ttl_ms);
  impl_->metrics.CountSessionOp(SessionOp::kTouch, info.ok());
  impl_->UpdateGauges();
  return info;
}

// ---- Time passes ------------------------------------------------------------

// The caller has claimed the sessions. Returns how many were deleted: another
// server may have used one meanwhile, or deleted it.
absl::StatusOr<int64_t> SessionManager::Impl::DeleteExpired(
    std::span<const SessionKey> keys) {
  for (const SessionKey& key : keys) cache.Erase(key);
  const absl::StatusOr<int64_t> deleted =
      store.DeleteExpired(keys, clock.UnixMs());
  if (!deleted.ok()) {
    metrics.CountSessionOp(SessionOp::kExpire, /*ok=*/false);
    return deleted;
  }
  num_stored -= *deleted;
  for (int64_t i = 0; i < *deleted; ++i) {
    metrics.CountSessionOp(SessionOp::kExpire, /*ok=*/true);
  }
  return deleted;
}

// A session that cannot be looked at is not known to have expired; the caller
// meets the error when it goes on.
absl::StatusOr<bool> SessionManager::Impl::DropIfExpired(SessionClaim& claim) {
  const absl::StatusOr<StoredSession> stored =
      claim.stored.has_value() ? *claim.stored : store.GetEntry(claim.key());
  if (!stored.ok() || !Expired(*stored)) return false;
  claim.slot = StateSlot();
  claim.stored.reset();
  ASSIGN_OR_RETURN(const int64_t deleted, DeleteExpired({&claim.key(), 1}));
  return deleted == 1;
}

void SessionManager::Impl::SuspendIdle() {
  const int64_t now_ns = clock.MonotonicNs();
  const int64_t used_until_ns = now_ns - options.idle_timeout_ms * 1'000'000;
  while (std::optional<SessionClaim> claim = table.ClaimOldest(used_until_ns)) {
    const int64_t seconds = (now_ns - claim->last_used_ns) / 1'000'000'000;
    PutAway(*std::move(claim),
            absl::StrCat("idle for ", seconds, " s, its slot was given back"));
  }
}

absl::Status SessionManager::Impl::DeleteSomeExpired() {
  // Sessions in a turn are left alone and found again, so a page has room for
  // all of them and some more.
  const int64_t page = options.num_slots + 256;
  // What is left waits for the next sweep: whoever stops the server waits for
  // this one.
  constexpr int kMostPages = 8;
  int64_t deleted = 1;
  for (int i = 0; i < kMostPages && deleted > 0; ++i) {
    ASSIGN_OR_RETURN(std::vector<SessionKey> keys,
                     store.ListExpired(clock.UnixMs(), page));
    // Whoever claims several does it in this order, or two would wait for each
    // other.
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    ASSIGN_OR_RETURN(deleted, DeletePage(keys));
  }
  return absl::OkStatus();
}

// In one write of the store's: many may have come to their end together.
absl::StatusOr<int64_t> SessionManager::Impl::DeletePage(
    std::span<const SessionKey> keys) {
  std::vector<SessionClaim> claims;
  std::vector<SessionKey> expired;
  for (const SessionKey& key : keys) {
    absl::StatusOr<SessionClaim> claim = table.Claim(key, ClaimFor::kUpkeep);
    if (!claim.ok()) continue;
    // It may have been used since it was listed; a damaged one goes.
    const absl::StatusOr<StoredSession> stored = store.GetEntry(key);
    if (stored.ok() ? Expired(*stored) : absl::IsDataLoss(stored.status())) {
      claim->slot = StateSlot();
      expired.push_back(key);
      claims.push_back(*std::move(claim));
    } else if (claim->slot) {
      table.MakeResident(*std::move(claim));
    }
  }
  return DeleteExpired(expired);
}

void SessionManager::Sweep() {
  impl_->SuspendIdle();
  const absl::Status status = impl_->DeleteSomeExpired();
  // Once, and not every second, while it lasts.
  const bool failed_before = impl_->expiry_fails.exchange(!status.ok());
  if (!status.ok() && !failed_before) {
    LogWarning("expired sessions are not deleted",
               {{"reason", FromAbsl(status.message())}});
  }
  const absl::StatusOr<SnapshotStore::Usage> usage = impl_->store.GetUsage();
  if (usage.ok()) {
    impl_->num_stored = static_cast<int64_t>(usage->sessions);
    impl_->metrics.SetSnapshotStore("store", static_cast<double>(usage->bytes),
                                    /*capacity=*/0);
  }
  impl_->UpdateGauges();
}

// Nothing is encoded: everything is in the store, and memory ends with the
// process.
void SessionManager::SuspendAll() {
  int64_t suspended = 0;
  while (std::optional<SessionClaim> claim =
             impl_->table.ClaimOldest(std::numeric_limits<int64_t>::max())) {
    impl_->cache.Note(claim->key(), "it was suspended with all others");
    impl_->metrics.CountSessionOp(SessionOp::kSuspend, /*ok=*/true);
    ++suspended;
  }
  LogInfo("resident sessions suspended", {{"sessions", suspended}});
  impl_->UpdateGauges();
}

}  // namespace reprise
