// The right to one session for one turn, as SessionManager hands it out.
#ifndef SERVER_SESSION_LEASE_H_
#define SERVER_SESSION_LEASE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/state/snapshot.h"
#include "engine/state/state_pool.h"
#include "server/metrics.h"
#include "server/session_outcome.h"
#include "server/session_types.h"
#include "server/store/snapshot_store.h"

namespace reprise {

class SessionManager;

// The exclusive right to a session and to the slot its state is in, or to a
// slot of a stateless request. Movable, used by one thread at a time; must not
// outlive its manager. Destroying it without Commit rolls back: the session is
// at its committed revision, as if the turn had not been.
class SessionLease {
 public:
  SessionLease() = default;
  ~SessionLease();
  SessionLease(SessionLease&& other) noexcept;
  SessionLease& operator=(SessionLease&& other) noexcept;

  std::byte* slot() const { return slot_.data(); }
  // The bookkeeping, advanced by the holder together with the state.
  SessionRecord& record() { return record_; }
  const SessionRecord& record() const { return record_; }
  // Call before the first change of the state or the record: an unchanged
  // session stays resident when the lease ends.
  void MarkChanged() { changed_ = true; }

  bool stateless() const { return key_.id.empty(); }
  const SessionKey& key() const { return key_; }
  ResumeSource source() const { return source_; }
  const std::string& resume_reason() const { return resume_reason_; }
  int64_t resume_us() const { return resume_us_; }
  // Of an empty lease: what its request answered before. Null for others.
  const TurnOutcome* repeated() const {
    return repeated_.has_value() ? &*repeated_ : nullptr;
  }
  explicit operator bool() const { return manager_ != nullptr; }

 private:
  friend class ClientStates;
  friend class SessionManager;
  SessionManager* manager_ = nullptr;
  SessionKey key_;  // id empty: stateless
  StateSlot slot_;
  SessionRecord record_;
  bool changed_ = false;
  ResumeSource source_ = ResumeSource::kNone;
  std::string resume_reason_;
  int64_t resume_us_ = 0;
  RequestIdentity request_;
  std::optional<TurnOutcome> repeated_;
};

}  // namespace reprise

#endif  // SERVER_SESSION_LEASE_H_
