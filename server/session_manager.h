// Sessions and where they are. A turn leases its session, advances the state in
// the lease's slot, and commits; a lease that ends without a commit rolls back.
//
//            Acquire                    Commit
//   stored ----------> leased (active) ---------> resident (slot, idle)
//     ^  ^                 | dropped                |  Acquire: leased again
//     |  +-----------------+                        |
//     +---------------------------------------------+  Suspend, eviction,
//            the slot is given back                    idle time-out
//
// Every commit writes the snapshot to the store before it is acknowledged, so a
// resident session is a cache of a stored one and giving its slot back loses
// nothing. Between the two lies a cache of snapshot bytes in memory, with a
// byte budget of its own, filled when a slot is given back.
#ifndef SERVER_SESSION_MANAGER_H_
#define SERVER_SESSION_MANAGER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/state/snapshot.h"
#include "engine/state/state_layout.h"
#include "engine/state/state_pool.h"
#include "server/metrics.h"
#include "server/session_lease.h"
#include "server/session_outcome.h"
#include "server/session_types.h"
#include "server/store/snapshot_store.h"

namespace reprise {

class ClientStates;

// Thread-safe. Functions that block on the store say so; run those on an
// Executor. No lock is held over the store, encoding or decoding: a session
// being worked on is claimed instead (session_table.h). While a turn has it,
// others get Aborted; while it is suspended, deleted or touched, they wait. A
// session whose TTL has passed does not exist, except while a turn runs on it:
// its commit renews the TTL.
class SessionManager {
 public:
  // `layout`, `store`, `metrics` and `clock` must outlive the manager. All
  // slots are allocated here. Blocks on the store (GetUsage). InvalidArgument
  // for options out of range; ResourceExhausted if there is no memory for the
  // slots; Unavailable from the store.
  static absl::StatusOr<std::unique_ptr<SessionManager>> Create(
      const ModelFingerprints& fingerprints, const StateLayout& layout,
      int64_t vocab_size, SnapshotStore& store, Metrics& metrics,
      const Clock& clock, const SessionManagerOptions& options);
  ~SessionManager();  // CHECKs that no lease is left

  // Leases a session for a turn, bringing its state to a slot. May block on
  // the store. NotFound; Aborted if it is leased already or at another
  // revision; ResourceExhausted if every slot is leased, there are too many
  // sessions or the tenant has all that it may; FailedPrecondition or DataLoss
  // from DecodeSnapshot (the stored snapshot is left as it is); Unavailable
  // from the store.
  //
  // If the request, by its id, is the one that made the session's revision, it
  // is not to be carried out again: the lease is empty and repeated() has what
  // it answered. InvalidArgument if it asks for something else under that id;
  // FailedPrecondition if the answer was too long to be kept.
  absl::StatusOr<SessionLease> Acquire(const SessionKey& key,
                                       const AcquireOptions& options);

  // A zeroed slot and an empty record. Evicts an idle session if need be; does
  // not block on the store. ResourceExhausted if every slot is leased.
  absl::StatusOr<SessionLease> AcquireStateless();
  // The same with the state of a preset, read from the store. NotFound; errors
  // of the store and of a snapshot as Acquire.
  absl::StatusOr<SessionLease> AcquirePreset(const SessionKey& preset);

  // Writes the lease's state as revision + 1 and returns that revision; the
  // session is resident then. Blocks on the store. On an error the turn is
  // rolled back: Aborted if another process committed first; Unavailable if
  // the store failed, and then the turn may be stored all the same (an answer
  // that was lost): read the session's revision before repeating it; Internal
  // if the session cannot be stored (CheckSession), as when the state has
  // overflowed. CHECKs that the lease is not stateless. `outcome`, if the
  // request has an id, is stored with it in the same write.
  absl::StatusOr<uint64_t> Commit(SessionLease lease,
                                  const TurnOutcome& outcome = {});

  // The functions behind the Sessions service; all may block on the store.
  // NotFound if there is no such session; Unavailable and DataLoss from the
  // store. New sessions: AlreadyExists; ResourceExhausted if there are too
  // many.
  absl::StatusOr<SessionInfo> CreateSession(const SessionKey& key,
                                            int64_t ttl_ms);
  absl::StatusOr<SessionInfo> Get(const SessionKey& key);
  absl::StatusOr<std::vector<SessionInfo>> List(std::string_view tenant,
                                                std::string_view after,
                                                int64_t limit);
  // Aborted if a turn is running. OK, and nothing to do, if not resident.
  absl::StatusOr<SessionInfo> Suspend(const SessionKey& key);
  // `from` may be in a turn: its last committed revision is forked. Aborted if
  // that is not the expected one, or if a turn is about to create `to`. The
  // TTL is that of `from` unless another is given.
  absl::StatusOr<SessionInfo> Fork(const SessionKey& from, const SessionKey& to,
                                   std::optional<uint64_t> expected_revision,
                                   std::optional<int64_t> ttl_ms = {});
  // Goes back to an earlier revision: a commit of its own, whose state is that
  // revision's, bit for bit. The session is resident then. OutOfRange, naming
  // those that are kept, for one that is not; 0, the empty session, always is.
  // Aborted if a turn is running or at another revision than the expected one;
  // ResourceExhausted and the errors of a snapshot as Acquire. On an error the
  // session is as it was, but for Unavailable, as Commit.
  absl::StatusOr<SessionInfo> Rewind(const SessionKey& key, uint64_t revision,
                                     std::optional<uint64_t> expected_revision);
  // Aborted if a turn is running.
  absl::Status Delete(const SessionKey& key);
  // Renews the TTL, or sets another one, 0 for none. While a turn is running:
  // OK without a change, since the turn renews it; Aborted for another TTL.
  absl::StatusOr<SessionInfo> Touch(const SessionKey& key,
                                    std::optional<int64_t> ttl_ms);

  // Suspends idle sessions, deletes expired ones, some thousand at most; for
  // every second or so. Blocks on the store.
  void Sweep();
  void SuspendAll();  // all resident sessions; for shutting down

  // Sessions as sealed bytes; client_states.h.
  ClientStates& client_states() { return *client_states_; }
  int64_t num_slots() const;
  int64_t num_free_slots() const;  // neither leased nor resident

 private:
  friend class ClientStates;
  friend class SessionLease;
  struct Impl;
  explicit SessionManager(std::unique_ptr<Impl> impl);
  void Release(SessionLease& lease);
  SessionLease MakeStateless(StateSlot slot, SessionRecord record,
                             ResumeSource source, const std::string& reason,
                             int64_t start_ns);

  std::unique_ptr<Impl> impl_;
  std::unique_ptr<ClientStates> client_states_;
};

}  // namespace reprise

#endif  // SERVER_SESSION_MANAGER_H_
