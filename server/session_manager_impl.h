// What SessionManager is made of, for session_*.cc and client_states.cc alone.
#ifndef SERVER_SESSION_MANAGER_IMPL_H_
#define SERVER_SESSION_MANAGER_IMPL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/session_cache.h"
#include "server/session_manager.h"
#include "server/session_table.h"

namespace reprise {

// Thread-safe, as its parts are; nothing here holds a lock of theirs.
struct SessionManager::Impl {
  Impl(const ModelFingerprints& fingerprints, const StateLayout& layout,
       int64_t vocab_size, SnapshotStore& store, Metrics& metrics,
       const Clock& clock, const SessionManagerOptions& options,
       std::unique_ptr<StatePool> pool);

  // -- session_loading.cc: bringing a session to a slot, and out of it --

  // How a session came to its slot.
  struct Resumed {
    ResumeSource source = ResumeSource::kNone;
    std::string reason = {};
    // Nothing is to be resumed: the request was carried out before.
    std::optional<TurnOutcome> repeated = {};
  };
  // Fills the claim's slot and record, wherever the session is. Errors as
  // SessionManager::Acquire; a resident session stays so then.
  absl::StatusOr<Resumed> Resume(SessionClaim& claim,
                                 const AcquireOptions& options);
  // What the request answered before, if it made this revision; none if it is
  // to be carried out, as it may. Errors as SessionManager::Acquire.
  absl::StatusOr<std::optional<TurnOutcome>> Admit(
      const SessionKey& key, const StoredSession& stored,
      const AcquireOptions& acquire);
  // Makes room if need be. ResourceExhausted if every slot is leased.
  absl::StatusOr<StateSlot> AcquireSlot();
  // Reads a snapshot of this revision into a zeroed slot. The errors of
  // DecodeSnapshot; DataLoss if it is of another.
  absl::StatusOr<SessionRecord> Decode(const SessionKey& key,
                                       std::string_view snapshot,
                                       uint64_t revision, StateSlot& slot);
  // Gives the slot of a claimed session back; its snapshot goes to memory.
  void PutAway(SessionClaim claim, const std::string& note);

  // -- session_manager.cc --

  absl::Status WriteCommit(SessionClaim& claim, const RequestIdentity& request,
                           std::string_view outcome);
  // Counts an error that has to do with a snapshot; others are not counted.
  void CountFailure(SnapshotOp op, const absl::Status& status);
  void UpdateGauges();

  // -- session_rewind.cc --

  absl::StatusOr<SessionInfo> Rewind(const SessionKey& key, uint64_t revision,
                                     std::optional<uint64_t> expected_revision);
  // The snapshot of a revision of the claimed session, and in `claim.stored`
  // what the session is now.
  absl::StatusOr<std::string> ReadRevision(
      SessionClaim& claim, uint64_t revision,
      std::optional<uint64_t> expected_revision);

  // -- session_upkeep.cc --

  // ResourceExhausted if there are max_sessions. Reserves nothing: the limit
  // may be passed by as many as are made at once.
  absl::Status CheckRoomForOne() const;
  // ResourceExhausted if the tenant has all the bytes, or for a new session
  // the sessions, that it may have. Nothing is reserved. Errors of the store.
  absl::Status CheckQuota(const std::string& tenant, bool new_session);
  // As it was committed last. NotFound, Aborted, and errors of the store.
  absl::Status ReadCommitted(const SessionKey& key,
                             std::optional<uint64_t> expected_revision,
                             StoredSession* stored, std::string* snapshot);
  absl::StatusOr<SessionInfo> PutNew(const SessionKey& key,
                                     StoredSession stored,
                                     const std::string& snapshot,
                                     const std::string& note);
  absl::StatusOr<SessionInfo> Fork(const SessionKey& from, const SessionKey& to,
                                   std::optional<uint64_t> expected_revision,
                                   std::optional<int64_t> ttl_ms);
  absl::Status Delete(const SessionKey& key);
  absl::StatusOr<SessionInfo> Touch(const SessionKey& key,
                                    std::optional<int64_t> ttl_ms);
  void SuspendIdle();
  absl::Status DeleteSomeExpired();
  absl::StatusOr<int64_t> DeleteExpired(std::span<const SessionKey> keys);
  absl::StatusOr<int64_t> DeletePage(std::span<const SessionKey> keys);
  // Deletes the claimed session if it has expired. The store's errors.
  absl::StatusOr<bool> DropIfExpired(SessionClaim& claim);
  bool Expired(const StoredSession& stored) const;
  SessionPlace Place(const SessionKey& key,
                     const std::optional<SessionTable::Seen>& seen) const;

  const ModelFingerprints fingerprints;
  const StateLayout& layout;
  const int64_t vocab_size;
  SnapshotStore& store;
  Metrics& metrics;
  const Clock& clock;
  const SessionManagerOptions options;

  // The order matters: the table gives its slots back to the pool.
  const std::unique_ptr<StatePool> pool;
  const std::string empty_snapshot;  // of a session without tokens
  SessionCache cache;
  SessionTable table;
  // Sessions in the store: followed here, put right by every Sweep.
  std::atomic<int64_t> num_stored{0};
  std::atomic<bool> expiry_fails{false};  // did, at the last Sweep

 private:
  struct Snapshot {
    StoredSession stored;
    std::shared_ptr<const std::string> bytes;  // shared: with the cache
    Resumed resumed;
  };
  absl::StatusOr<Snapshot> FindSnapshot(const SessionKey& key, bool in_memory);
  absl::StatusOr<Resumed> Load(SessionClaim& claim,
                               const AcquireOptions& options);
  absl::StatusOr<Resumed> StartNew(SessionClaim& claim,
                                   const AcquireOptions& options);
};

// Aborted, naming both, unless they are equal or none is expected.
absl::Status CheckExpectedRevision(const SessionKey& key, uint64_t revision,
                                   std::optional<uint64_t> expected);

uint64_t NumTokens(const SessionRecord& record);  // of the conversation

void RenewExpiry(int64_t now_unix_ms, StoredSession& stored);  // by its TTL

inline double SecondsBetween(int64_t start_ns, int64_t end_ns) {
  return static_cast<double>(end_ns - start_ns) * 1e-9;
}

}  // namespace reprise

#endif  // SERVER_SESSION_MANAGER_IMPL_H_
