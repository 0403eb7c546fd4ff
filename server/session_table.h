// The sessions that somebody works on or that hold a slot, and the rule that
// keeps them apart: at most one claim or lease on a session at any time.
//
//               Claim            MakeLeased
//   (absent) ----------> claimed ----------> leased
//       ^ <----------------| ^ <----------------'
//          claim dropped   | |    ClaimLeased
//             MakeResident v | Claim, ClaimOldest
//                         resident (waiting to be used again)
//
// A claim is for a turn (reading its session, committing it) or for upkeep
// (suspending, deleting, forking, changing the entry). Both do their slow work
// without any lock; the claim keeps others away.
#ifndef SERVER_SESSION_TABLE_H_
#define SERVER_SESSION_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/state/snapshot.h"
#include "engine/state/state_pool.h"
#include "server/store/snapshot_store.h"

namespace reprise {

class SessionTable;

enum class ClaimFor { kTurn, kUpkeep };

// The exclusive right to work on a session. Movable, used by one thread at a
// time. Dropping it gives back the slot, if it has one: the session is absent
// from the table then, and in the store as it was committed last.
class SessionClaim {
 public:
  ~SessionClaim();
  SessionClaim(SessionClaim&& other) noexcept;
  SessionClaim& operator=(SessionClaim&&) = delete;

  const SessionKey& key() const { return key_; }

  // The session as it is stored; none if it is not known to be.
  std::optional<StoredSession> stored;
  // A resident session's; the slot is empty for others.
  StateSlot slot;
  SessionRecord record;
  int64_t last_used_ns = 0;

 private:
  friend class SessionTable;
  SessionClaim(SessionTable* table, const SessionKey& key)
      : table_(table), key_(key) {}
  SessionTable* table_;  // null when moved from, or ended by the table
  SessionKey key_;
};

// Thread-safe. Must outlive its claims.
class SessionTable {
 public:
  // Aborted if the session is leased or claimed for a turn; waits while it is
  // claimed for upkeep, which ends by itself.
  absl::StatusOr<SessionClaim> Claim(const SessionKey& key, ClaimFor purpose);

  // Claims, for upkeep, the resident session that was not used for longest, if
  // that was at `used_until_ns` or before.
  std::optional<SessionClaim> ClaimOldest(int64_t used_until_ns);

  // Waits until a claim for upkeep that has a slot ends. False, at once, if
  // there is none.
  bool WaitForUpkeep();

  // Ends a claim that has a slot: the session stays in it.
  void MakeResident(SessionClaim claim);
  // Ends a claim whose slot and record have been moved to a lease.
  void MakeLeased(SessionClaim claim);

  // Goes on with a leased session as a claim for a turn; slot and record are
  // the caller's to fill in.
  SessionClaim ClaimLeased(const SessionKey& key);

  struct Seen {
    enum class State { kActive, kResident, kUpkeep } state;
    std::optional<StoredSession> stored;
  };
  // None if the session is absent.
  std::optional<Seen> Look(const SessionKey& key) const;

  // How many rows are leased or claimed for a turn, and how many resident; at
  // one moment, and without looking at them.
  struct Counts {
    int64_t active = 0;
    int64_t resident = 0;
  };
  Counts counts() const;

 private:
  friend class SessionClaim;
  enum class State { kTurn, kUpkeep, kLeased, kResident };
  struct Row {
    State state = State::kUpkeep;  // neither active nor resident
    bool upkeep_of_slot = false;
    std::optional<StoredSession> stored;
    StateSlot slot;  // resident ones'
    SessionRecord record;
    int64_t last_used_ns = 0;
  };

  SessionClaim ClaimRow(const SessionKey& key, Row& row, State state)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Row& EndClaim(SessionClaim& claim) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Drop(SessionClaim& claim);
  // The only way to change a row's state.
  void SetState(Row& row, State state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Count(State state, int64_t change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  CondVar claim_ended_;
  // At most one row for each slot and each thread that works on a session, so
  // looking at all of them is quick.
  std::map<SessionKey, Row> rows_ ABSL_GUARDED_BY(mu_);
  int64_t upkeep_of_slots_ ABSL_GUARDED_BY(mu_) = 0;
  Counts counts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace reprise

#endif  // SERVER_SESSION_TABLE_H_
