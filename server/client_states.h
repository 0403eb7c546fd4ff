// Sessions in the hands of clients: what leaves the server is a sealed
// snapshot, and what comes back is opened, checked in full, and becomes a new
// session or the state of one turn. docs/export.md tells it to users.
//
// A state that was given out is a session of its own, as a fork is: it counts
// its revisions on from there, whatever becomes of the one it was made of.
#ifndef SERVER_CLIENT_STATES_H_
#define SERVER_CLIENT_STATES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/state/snapshot.h"
#include "server/byte_budget.h"
#include "server/seal.h"
#include "server/seal_keys.h"
#include "server/session_lease.h"
#include "server/session_types.h"

namespace reprise {

class SessionManager;

// Where an import goes.
struct ImportTarget {
  std::string tenant;
  // None: that of the session in the seal, or drawn if it names none.
  std::optional<std::string> id;
  int64_t ttl_ms = 0;  // 0 = none
};

// Thread-safe, belongs to a SessionManager. Functions encode, encrypt and
// decode, which takes milliseconds, under no lock; those about sessions block
// on the store. Run them on an Executor. What they give out is counted in
// sealed_bytes() until it is destroyed: ResourceExhausted if there is no room.
class ClientStates {
 public:
  // `sessions` must outlive it.
  ClientStates(SessionManager& sessions, std::shared_ptr<const SealKeys> keys,
               int64_t seal_ttl_ms, int64_t sealed_memory_bytes);

  // The session as it was committed last, which may be in a turn. NotFound;
  // Aborted if that is not the expected revision; Unavailable and DataLoss from
  // the store; the errors of DecodeSnapshot; Internal if OpenSSL fails.
  absl::StatusOr<SealedState> Export(const SessionKey& key,
                                     const SealOptions& options,
                                     std::optional<uint64_t> expected_revision);

  // What a lease holds, as the revision after the one it began with. Internal
  // if it cannot be stored (CheckSession), or OpenSSL fails.
  absl::StatusOr<SealedState> Seal(const SessionKey& from,
                                   const SessionLease& lease,
                                   const SealOptions& options);

  // The seal's part of checking what a client sent: the errors of OpenSnapshot.
  absl::StatusOr<OpenedSnapshot> Open(std::string_view tenant,
                                      std::string_view sealed);

  // A new session of it, at the revision of the seal. The errors of Open and
  // DecodeSnapshot; AlreadyExists; ResourceExhausted for max_sessions and the
  // tenant's quota; InvalidArgument for an id in the seal that is none;
  // Unavailable from the store.
  absl::StatusOr<SessionInfo> Import(const ImportTarget& target,
                                     std::string_view sealed);

  // A stateless lease that begins with it. The errors of DecodeSnapshot;
  // ResourceExhausted if every slot is leased.
  absl::StatusOr<SessionLease> Acquire(const OpenedSnapshot& opened);

  // More than the largest session of this model takes, sealed.
  uint64_t most_sealed_bytes() const;

  // For sealed bytes on their way to and from clients, of all calls together.
  ByteBudget& sealed_bytes() { return sealed_bytes_; }

 private:
  absl::StatusOr<SealedState> SealBytes(const SessionKey& from,
                                        const SessionRecord& record,
                                        const SealOptions& options,
                                        std::string_view snapshot);
  absl::StatusOr<SessionInfo> ImportOpened(const ImportTarget& target,
                                           const OpenedSnapshot& opened);

  SessionManager& sessions_;
  // shared: made by main, which may log of it.
  const std::shared_ptr<const SealKeys> keys_;
  const int64_t seal_ttl_ms_;
  ByteBudget sealed_bytes_;
};

// 16 random bytes in hexadecimal, for a session whose id nobody chose.
std::string DrawSessionId();

}  // namespace reprise

#endif  // SERVER_CLIENT_STATES_H_
