#include "server/session_manager.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "server/client_states.h"
#include "server/seal.h"
#include "server/session_manager_impl.h"

namespace reprise {
namespace {

constexpr size_t kMaxIdLength = 128;
constexpr absl::string_view kPresetsSuffix = "/presets";

SnapshotFailure FailureOf(const absl::Status& status) {
  if (IsNoSpace(status)) return SnapshotFailure::kNoSpace;
  if (const auto failure = SealFailureOf(status); failure.has_value()) {
    return *failure;
  }
  switch (SnapshotFaultOf(status).value_or(SnapshotFault::kChecksum)) {
    case SnapshotFault::kTruncated:
      return SnapshotFailure::kTruncated;
    case SnapshotFault::kVersion:
      return SnapshotFailure::kVersion;
    case SnapshotFault::kModelMismatch:
      return SnapshotFailure::kModelMismatch;
    case SnapshotFault::kShape:
      return SnapshotFailure::kShape;
    case SnapshotFault::kNonfinite:
      return SnapshotFailure::kNonfinite;
    case SnapshotFault::kChecksum:
      break;
  }
  return absl::IsUnavailable(status) ? SnapshotFailure::kIo
                                     : SnapshotFailure::kChecksum;
}

absl::Status ValidateName(std::string_view id, std::string_view field,
                          absl::string_view what) {
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  const auto refuse = [field, what](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat(
        ToAbsl(field), ": ", why, "; ", what, " is 1..", kMaxIdLength,
        " characters of A-Z a-z 0-9 . _ - and does not start with a dot"));
  };
  if (id.empty()) return refuse("is empty");
  if (id.size() > kMaxIdLength) {
    return refuse(absl::StrCat("has ", id.size(), " characters"));
  }
  const size_t bad = id.find_first_not_of(kAllowed);
  if (bad != std::string_view::npos) {
    return refuse(absl::StrCat(
        "has \"", absl::CHexEscape(ToAbsl(id.substr(bad, 1))), "\""));
  }
  if (id.front() == '.') return refuse("starts with a dot");
  return absl::OkStatus();
}

}  // namespace

uint64_t NumTokens(const SessionRecord& record) {
  return static_cast<uint64_t>(record.position) +
         (record.pending_token.has_value() ? 1 : 0);
}

SessionKey PresetKey(const std::string& tenant, const std::string& name) {
  return {absl::StrCat(tenant, kPresetsSuffix), name};
}

std::string Describe(const SessionKey& key) {
  return absl::StrCat(
      absl::EndsWith(key.tenant, kPresetsSuffix) ? "preset " : "session ",
      key.id);
}

absl::Status ValidateSessionId(std::string_view id, std::string_view field) {
  return ValidateName(id, field, "a session id");
}

absl::Status ValidatePresetName(std::string_view name, std::string_view field) {
  return ValidateName(name, field, "a preset's name");
}

// ---- Leases -----------------------------------------------------------------

SessionLease::~SessionLease() {
  if (manager_ != nullptr) manager_->Release(*this);
}

SessionLease::SessionLease(SessionLease&& other) noexcept
    : manager_(std::exchange(other.manager_, nullptr)),
      key_(std::move(other.key_)),
      slot_(std::move(other.slot_)),
      record_(std::move(other.record_)),
      changed_(other.changed_),
      source_(other.source_),
      resume_reason_(std::move(other.resume_reason_)),
      resume_us_(other.resume_us_),
      request_(std::move(other.request_)),
      repeated_(std::move(other.repeated_)) {}

SessionLease& SessionLease::operator=(SessionLease&& other) noexcept {
  if (this == &other) return *this;
  if (manager_ != nullptr) manager_->Release(*this);
  manager_ = std::exchange(other.manager_, nullptr);
  key_ = std::move(other.key_);
  slot_ = std::move(other.slot_);
  record_ = std::move(other.record_);
  changed_ = other.changed_;
  source_ = other.source_;
  resume_reason_ = std::move(other.resume_reason_);
  resume_us_ = other.resume_us_;
  request_ = std::move(other.request_);
  repeated_ = std::move(other.repeated_);
  return *this;
}

// ---- Creation ---------------------------------------------------------------

SessionManager::Impl::Impl(const ModelFingerprints& fingerprints,
                           const StateLayout& layout, int64_t vocab_size,
                           SnapshotStore& store, Metrics& metrics,
                           const Clock& clock,
                           const SessionManagerOptions& options,
                           std::unique_ptr<StatePool> pool)
    : fingerprints(fingerprints),
      layout(layout),
      vocab_size(vocab_size),
      store(store),
      metrics(metrics),
      clock(clock),
      options(options),
      pool(std::move(pool)),
      empty_snapshot(EncodeSnapshot(fingerprints, SessionRecord(), layout,
                                    this->pool->Acquire()->bytes())),
      cache(options.memory_tier_bytes) {}

absl::StatusOr<std::unique_ptr<SessionManager>> SessionManager::Create(
    const ModelFingerprints& fingerprints, const StateLayout& layout,
    int64_t vocab_size, SnapshotStore& store, Metrics& metrics,
    const Clock& clock, const SessionManagerOptions& options) {
  if (options.memory_tier_bytes < 0 || options.idle_timeout_ms <= 0 ||
      options.max_sessions <= 0 || options.checkpoint_bytes < 0 ||
      options.max_tenant_sessions < 0 || options.max_tenant_bytes < 0 ||
      options.seal_ttl_ms < 0 || options.sealed_memory_bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "memory_tier_bytes is ", options.memory_tier_bytes,
        ", checkpoint_bytes is ", options.checkpoint_bytes,
        ", max_tenant_sessions is ", options.max_tenant_sessions,
        ", max_tenant_bytes is ", options.max_tenant_bytes, ", seal_ttl_ms is ",
        options.seal_ttl_ms, " and sealed_memory_bytes is ",
        options.sealed_memory_bytes,
        ", must not be negative; idle_timeout_ms is ", options.idle_timeout_ms,
        " and max_sessions is ", options.max_sessions, ", must be positive"));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<StatePool> pool,
                   StatePool::Create(layout, options.num_slots));
  ASSIGN_OR_RETURN(const SnapshotStore::Usage usage, store.GetUsage());
  auto impl = std::make_unique<Impl>(fingerprints, layout, vocab_size, store,
                                     metrics, clock, options, std::move(pool));
  impl->num_stored = static_cast<int64_t>(usage.sessions);
  impl->UpdateGauges();
  std::unique_ptr<SessionManager> sessions(new SessionManager(std::move(impl)));
  std::shared_ptr<const SealKeys> keys = options.seal_keys;
  if (keys == nullptr) {
    ASSIGN_OR_RETURN(keys, SealKeys::Ephemeral());
  }
  sessions->client_states_ = std::make_unique<ClientStates>(
      *sessions, std::move(keys), options.seal_ttl_ms,
      options.sealed_memory_bytes);
  return sessions;
}

SessionManager::SessionManager(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}

SessionManager::~SessionManager() {
  CHECK(impl_->table.counts().active ==
        0);  // the pool checks the stateless ones
}

// ---- Turns ------------------------------------------------------------------

absl::StatusOr<SessionLease> SessionManager::Acquire(
    const SessionKey& key, const AcquireOptions& options) {
  CHECK(!key.id.empty());  // an empty one marks stateless leases
  const int64_t start_ns = impl_->clock.MonotonicNs();
  const auto acquire = [&]() -> absl::StatusOr<SessionLease> {
    ASSIGN_OR_RETURN(SessionClaim claim,
                     impl_->table.Claim(key, ClaimFor::kTurn));
    const bool was_resident = static_cast<bool>(claim.slot);
    absl::StatusOr<Impl::Resumed> resumed = impl_->Resume(claim, options);
    SessionLease lease;
    if (!resumed.ok() || resumed->repeated.has_value()) {
      // At another revision than expected, or with nothing to be done.
      if (was_resident && claim.stored.has_value()) {
        impl_->table.MakeResident(std::move(claim));
      }
      RETURN_IF_ERROR(resumed.status());
      lease.repeated_ = std::move(resumed->repeated);
      return lease;
    }
    lease.manager_ = this;
    lease.key_ = key;
    lease.slot_ = std::move(claim.slot);
    lease.record_ = std::move(claim.record);
    lease.source_ = resumed->source;
    lease.resume_reason_ = std::move(resumed->reason);
    lease.request_ = options.request;
    impl_->table.MakeLeased(std::move(claim));
    return lease;
  };
  absl::StatusOr<SessionLease> lease = acquire();
  impl_->metrics.CountSessionOp(SessionOp::kAcquire, lease.ok());
  impl_->UpdateGauges();
  if (!lease.ok()) return lease;
  if (lease->repeated() != nullptr) {
    impl_->metrics.CountSessionOp(SessionOp::kRepeat, /*ok=*/true);
    return lease;
  }
  const int64_t ns = impl_->clock.MonotonicNs() - start_ns;
  lease->resume_us_ = ns / 1000;
  impl_->metrics.ObserveResume(lease->source_, SecondsBetween(0, ns));
  if (lease->source_ == ResumeSource::kMemory ||
      lease->source_ == ResumeSource::kStore) {
    impl_->metrics.CountSessionOp(SessionOp::kResume, /*ok=*/true);
  }
  return lease;
}

absl::StatusOr<SessionLease> SessionManager::AcquireStateless() {
  ASSIGN_OR_RETURN(StateSlot slot, impl_->AcquireSlot());
  SessionLease lease;
  lease.manager_ = this;
  lease.slot_ = std::move(slot);
  lease.resume_reason_ = "stateless request";
  impl_->UpdateGauges();
  return lease;
}

absl::StatusOr<SessionLease> SessionManager::AcquirePreset(
    const SessionKey& preset) {
  const int64_t start_ns = impl_->clock.MonotonicNs();
  StoredSession stored;
  std::string snapshot;
  const absl::Status status = impl_->store.Get(preset, &stored, &snapshot);
  if (absl::IsNotFound(status)) {
    return absl::NotFoundError(absl::StrCat("preset: there is no ", preset.id));
  }
  impl_->CountFailure(SnapshotOp::kRead, status);
  RETURN_IF_ERROR(status);
  ASSIGN_OR_RETURN(StateSlot slot, impl_->AcquireSlot());
  ASSIGN_OR_RETURN(SessionRecord record,
                   impl_->Decode(preset, snapshot, stored.revision, slot));
  return MakeStateless(std::move(slot), std::move(record), ResumeSource::kStore,
                       "preset " + preset.id, start_ns);
}

// Begun at `start_ns`, with a state from somewhere.
SessionLease SessionManager::MakeStateless(StateSlot slot, SessionRecord record,
                                           ResumeSource source,
                                           const std::string& reason,
                                           int64_t start_ns) {
  SessionLease lease;
  lease.manager_ = this;
  lease.slot_ = std::move(slot);
  lease.record_ = std::move(record);
  lease.source_ = source;
  lease.resume_reason_ = reason;
  impl_->UpdateGauges();
  const int64_t ns = impl_->clock.MonotonicNs() - start_ns;
  lease.resume_us_ = ns / 1000;
  impl_->metrics.ObserveResume(lease.source_, SecondsBetween(0, ns));
  return lease;
}

// Never blocks: leases end on the scheduler's thread.
void SessionManager::Release(SessionLease& lease) {
  lease.manager_ = nullptr;
  if (lease.stateless()) {
    lease.slot_ = StateSlot();
    return impl_->UpdateGauges();
  }
  {
    SessionClaim claim = impl_->table.ClaimLeased(lease.key_);
    claim.slot = std::move(lease.slot_);
    claim.record = std::move(lease.record_);
    claim.last_used_ns = impl_->clock.MonotonicNs();
    if (!claim.stored.has_value()) {
      // It was to be created, and is not.
    } else if (lease.changed_) {
      impl_->cache.Note(lease.key_, "its last turn was rolled back");
    } else {
      impl_->table.MakeResident(std::move(claim));
    }
  }
  impl_->UpdateGauges();
}

// On OK, `claim.stored` is the new revision.
absl::Status SessionManager::Impl::WriteCommit(SessionClaim& claim,
                                               const RequestIdentity& request,
                                               std::string_view outcome) {
  const int64_t start_ns = clock.MonotonicNs();
  const int64_t now_unix_ms = clock.UnixMs();
  const bool exists = claim.stored.has_value();
  StoredSession stored = claim.stored.value_or(StoredSession());
  std::optional<uint64_t> expected;
  if (exists) expected = stored.revision;
  claim.record.revision = stored.revision + 1;
  RETURN_IF_ERROR(
      CheckSession(claim.record, layout, vocab_size, claim.slot.bytes()));
  const std::string snapshot =
      EncodeSnapshot(fingerprints, claim.record, layout, claim.slot.bytes());
  stored.id = claim.key().id;
  stored.revision = claim.record.revision;
  stored.tokens = NumTokens(claim.record);
  stored.snapshot_bytes = snapshot.size();
  stored.updated_unix_ms = now_unix_ms;
  if (!exists) stored.created_unix_ms = now_unix_ms;
  RenewExpiry(now_unix_ms, stored);
  stored.request_id = request.id;
  stored.request_fingerprint = request.fingerprint;
  SnapshotStore::PutOptions put;
  put.checkpoint_bytes = static_cast<uint64_t>(options.checkpoint_bytes);
  put.outcome = outcome;
  ASSIGN_OR_RETURN(claim.stored,
                   store.Put(claim.key(), expected, stored, snapshot, put));
  if (!exists) ++num_stored;
  metrics.ObserveSnapshotWrite("store",
                               SecondsBetween(start_ns, clock.MonotonicNs()),
                               static_cast<int64_t>(snapshot.size()));
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> SessionManager::Commit(SessionLease lease,
                                                const TurnOutcome& outcome) {
  CHECK(lease.manager_ == this && !lease.stateless());
  lease.manager_ = nullptr;
  const std::string encoded =
      lease.request_.id.empty() ? "" : EncodeOutcome(outcome);
  uint64_t revision = 0;
  absl::Status status;
  {
    SessionClaim claim = impl_->table.ClaimLeased(lease.key_);
    claim.slot = std::move(lease.slot_);
    claim.record = std::move(lease.record_);
    claim.last_used_ns = impl_->clock.MonotonicNs();
    status = impl_->WriteCommit(claim, lease.request_, encoded);
    // What is in memory is old now; and after an error, only the store itself
    // knows what it holds.
    impl_->cache.Erase(lease.key_);
    if (status.ok()) {
      revision = claim.stored->revision;
      impl_->table.MakeResident(std::move(claim));
    } else {
      impl_->cache.Note(lease.key_, "its last commit failed");
    }
  }
  impl_->CountFailure(SnapshotOp::kWrite, status);
  impl_->metrics.CountSessionOp(SessionOp::kCommit, status.ok());
  impl_->UpdateGauges();
  RETURN_IF_ERROR(status);
  return revision;
}

// ---- What others measure ----------------------------------------------------

int64_t SessionManager::num_slots() const { return impl_->options.num_slots; }

int64_t SessionManager::num_free_slots() const {
  return impl_->pool->num_free();
}

void SessionManager::Impl::CountFailure(SnapshotOp op,
                                        const absl::Status& status) {
  if (!absl::IsUnavailable(status) && !absl::IsDataLoss(status) &&
      !SnapshotFaultOf(status).has_value() &&
      !SealFailureOf(status).has_value()) {
    return;
  }
  metrics.CountSnapshotFailure(op, FailureOf(status));
  const LogFields fields = {{"reason", FromAbsl(status.message())}};
  switch (op) {
    case SnapshotOp::kRead:
      return LogError("a snapshot could not be read", fields);
    case SnapshotOp::kWrite:
      return LogError("a snapshot could not be written", fields);
    case SnapshotOp::kOpen:  // a client's fault
      return LogDebug("a client's snapshot was refused", fields);
  }
}

// Two threads may set these in the wrong order; Sweep puts that right within a
// second.
void SessionManager::Impl::UpdateGauges() {
  const auto [active, resident] = table.counts();
  metrics.SetSessions(active, resident,
                      std::max<int64_t>(0, num_stored - active - resident));
  metrics.SetStatePoolUsed(1.0 - static_cast<double>(pool->num_free()) /
                                     static_cast<double>(pool->num_slots()));
  metrics.SetSnapshotStore("memory", static_cast<double>(cache.bytes()),
                           static_cast<double>(cache.capacity_bytes()));
}

}  // namespace reprise
