// What stores know of a session beside its snapshot.
#ifndef SERVER_STORE_STORED_SESSION_H_
#define SERVER_STORE_STORED_SESSION_H_

#include <cstdint>
#include <string>
#include <vector>

namespace reprise {

// Names one session. Ids are unique within a tenant; another tenant's session
// does not exist.
struct SessionKey {
  std::string tenant;
  std::string id;
  friend bool operator==(const SessionKey&, const SessionKey&) = default;
  friend auto operator<=>(const SessionKey&, const SessionKey&) = default;
};

// An earlier revision of a session whose snapshot is still there.
struct StoredCheckpoint {
  uint64_t revision = 0;
  uint64_t tokens = 0;
  uint64_t snapshot_bytes = 0;
  int64_t unix_ms = 0;  // when that revision was committed
  friend bool operator==(const StoredCheckpoint&,
                         const StoredCheckpoint&) = default;
};

// What is known of a stored session without reading its snapshot. What is
// marked (store) the store itself fills in, whatever the caller says.
struct StoredSession {
  std::string id;  // (store)
  uint64_t revision = 0;
  uint64_t tokens = 0;
  uint64_t snapshot_bytes = 0;  // (store)
  int64_t created_unix_ms = 0;
  int64_t updated_unix_ms = 0;
  int64_t expires_unix_ms = 0;  // 0 = never
  int64_t ttl_ms = 0;           // 0 = none
  std::string forked_from;      // id, or empty
  // Of the turn that made this revision, if it had a request_id.
  std::string request_id;
  uint64_t request_fingerprint = 0;
  uint64_t outcome_bytes = 0;                 // (store)
  std::vector<StoredCheckpoint> checkpoints;  // (store) oldest first
};

inline bool HasExpired(const StoredSession& session, int64_t unix_ms) {
  return session.expires_unix_ms > 0 && session.expires_unix_ms <= unix_ms;
}

}  // namespace reprise

#endif  // SERVER_STORE_STORED_SESSION_H_
