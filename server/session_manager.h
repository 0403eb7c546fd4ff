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

#include <cstddef>
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
#include "server/store/snapshot_store.h"

namespace reprise {

enum class SessionPlace { kActive, kResident, kMemory, kSuspended };

struct SessionInfo {
  StoredSession stored;
  SessionPlace place = SessionPlace::kSuspended;
};

struct SessionManagerOptions {
  int64_t num_slots = 64;                    // leased and resident together
  int64_t memory_tier_bytes = 256 << 20;     // snapshots in memory
  int64_t idle_timeout_ms = 10 * 60 * 1000;  // resident, then suspended
  int64_t max_sessions = 1'000'000;          // stored
};

// Thread-safe. Functions block on the store where they say so; run those on an
// Executor. No lock is held over store calls, encoding or decoding: a session
// being worked on is claimed instead (session_table.h). While a turn has it,
// others get Aborted; while it is suspended, forked, deleted or touched, which
// takes milliseconds, they wait. A session whose TTL has passed does not exist,
// except while a turn runs on it: its commit renews the TTL.
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

  struct AcquireOptions {
    std::optional<uint64_t> expected_revision;
    bool create = false;  // make the session if there is none
  };
  // Leases a session for a turn, bringing its state to a slot. May block on
  // the store. NotFound; Aborted if it is leased already or at another
  // revision; ResourceExhausted if every slot is leased or there are too many
  // sessions; FailedPrecondition or DataLoss from DecodeSnapshot (the stored
  // snapshot is left as it is); Unavailable from the store.
  absl::StatusOr<SessionLease> Acquire(const SessionKey& key,
                                       const AcquireOptions& options);

  // A zeroed slot and an empty record. Evicts an idle session if need be; does
  // not block on the store. ResourceExhausted if every slot is leased.
  absl::StatusOr<SessionLease> AcquireStateless();

  // Writes the lease's state as revision + 1 and returns that revision; the
  // session is resident then. Blocks on the store. On an error the turn is
  // rolled back: Aborted if another process committed first; Unavailable if
  // the store failed, and then the turn may be stored all the same (an answer
  // that was lost): read the session's revision before repeating it; Internal
  // if the session cannot be stored (CheckSession), as when the state has
  // overflowed. CHECKs that the lease is not stateless.
  absl::StatusOr<uint64_t> Commit(SessionLease lease);

  // The functions behind the Sessions service; all may block on the store.
  // NotFound if there is no such session; Unavailable and DataLoss from the
  // store. New sessions: AlreadyExists; ResourceExhausted if there are
  // too many.
  absl::StatusOr<SessionInfo> CreateSession(const SessionKey& key,
                                            int64_t ttl_ms);
  absl::StatusOr<SessionInfo> Get(const SessionKey& key);
  absl::StatusOr<std::vector<SessionInfo>> List(std::string_view tenant,
                                                std::string_view after,
                                                int64_t limit);
  // Aborted if a turn is running. OK, and nothing to do, if not resident.
  absl::StatusOr<SessionInfo> Suspend(const SessionKey& key);
  // `from` may be in a turn: its last committed revision is forked. Aborted if
  // that is not the expected one, or if a turn is about to create `to`.
  absl::StatusOr<SessionInfo> Fork(const SessionKey& from, const SessionKey& to,
                                   std::optional<uint64_t> expected_revision);
  // Aborted if a turn is running.
  absl::Status Delete(const SessionKey& key);
  // Renews the TTL, or sets another one, 0 for none. While a turn is running:
  // OK without a change, since the turn renews it; Aborted for another TTL.
  absl::StatusOr<SessionInfo> Touch(const SessionKey& key,
                                    std::optional<int64_t> ttl_ms);

  // Suspends sessions that were idle for too long and deletes expired ones;
  // call it every second or so. Blocks on the store.
  void Sweep();
  // Suspends all resident sessions; for shutting down.
  void SuspendAll();

  int64_t num_slots() const;
  int64_t num_free_slots() const;  // neither leased nor resident

 private:
  friend class SessionLease;
  struct Impl;
  explicit SessionManager(std::unique_ptr<Impl> impl);
  void Release(SessionLease& lease);

  std::unique_ptr<Impl> impl_;
};

// Whether Acquire or AcquireStateless failed because every slot is leased. That
// passes; the ResourceExhausted of too many sessions does not.
bool IsOutOfSlots(const absl::Status& status);

// InvalidArgument, naming the rule, unless `id` is 1..128 characters of
// A-Z a-z 0-9 . _ - and does not start with a dot. `field` is the request's.
absl::Status ValidateSessionId(std::string_view id, std::string_view field);

}  // namespace reprise

#endif  // SERVER_SESSION_MANAGER_H_
