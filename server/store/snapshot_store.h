// Where snapshots lie: an interface over stores, chosen by URI.
//
//   memory:         in this process, gone with it
//   rocksdb:PATH    an embedded database; the default
//
// A new store is one file and one line in the table of snapshot_store.cc.
#ifndef SERVER_STORE_SNAPSHOT_STORE_H_
#define SERVER_STORE_SNAPSHOT_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

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

// Thread-safe. Calls block for as long as the medium takes. Every function may
// return Unavailable when the medium fails (I/O error, disk full, connection
// lost), with the reason.
class SnapshotStore {
 public:
  virtual ~SnapshotStore() = default;

  struct PutOptions {
    // What the checkpoints may take together. The snapshot that is replaced
    // becomes the latest of them; what does not fit is dropped, oldest first.
    uint64_t checkpoint_bytes = 0;
    // What the turn answered, in place of the turn's before.
    std::string_view outcome;
  };
  // Writes the session, all of it or nothing, and returns the entry as it is
  // kept; on OK it survives a crash if the store is a durable one.
  // Compare-and-set: `expected_revision` is the stored one, none = the session
  // must not exist. Aborted, naming both revisions, if it is not so; nothing is
  // written then. DataLoss if the stored entry is damaged.
  virtual absl::StatusOr<StoredSession> Put(
      const SessionKey& key, std::optional<uint64_t> expected_revision,
      const StoredSession& session, std::string_view snapshot,
      const PutOptions& options) = 0;

  // Replaces the entry, but for its revision, and nothing that lies beside it.
  // Compare-and-set as Put.
  virtual absl::Status PutEntry(const SessionKey& key,
                                uint64_t expected_revision,
                                const StoredSession& session) = 0;

  // NotFound if there is no such session. DataLoss if the entry is damaged.
  virtual absl::StatusOr<StoredSession> GetEntry(const SessionKey& key) = 0;
  // The entry and the snapshot of one and the same Put. NotFound, DataLoss.
  virtual absl::Status Get(const SessionKey& key, StoredSession* session,
                           std::string* snapshot) = 0;

  // The snapshot of the current revision or of a checkpoint. NotFound if there
  // is no such session, DataLoss; OutOfRange, naming the revisions that are
  // kept, if this one is not.
  virtual absl::StatusOr<std::string> GetSnapshot(const SessionKey& key,
                                                  uint64_t revision) = 0;
  // The outcome that was put with the current revision, empty if none was.
  // NotFound, DataLoss; Aborted if the session is at another revision.
  virtual absl::StatusOr<std::string> GetOutcome(const SessionKey& key,
                                                 uint64_t revision) = 0;

  // NotFound if there is no such session. Deletes damaged ones too, and all
  // checkpoints.
  virtual absl::Status Delete(const SessionKey& key) = 0;

  // At most `limit` sessions of a tenant with ids after `after`, ascending by
  // id (as bytes), in time that does not depend on how many there are. Damaged
  // entries are left out and logged.
  virtual absl::StatusOr<std::vector<StoredSession>> List(
      std::string_view tenant, std::string_view after, int64_t limit) = 0;

  // Keys of all tenants whose expiry is set and not after `unix_ms`, at most
  // `limit`.
  virtual absl::StatusOr<std::vector<SessionKey>> ListExpired(
      int64_t unix_ms, int64_t limit) = 0;

  // Bytes of snapshots, checkpoints' too, and outcomes, about.
  struct Usage {
    uint64_t bytes = 0;
    uint64_t sessions = 0;
  };
  virtual absl::StatusOr<Usage> GetUsage() = 0;
  virtual absl::StatusOr<Usage> GetTenantUsage(std::string_view tenant) = 0;
};

// Opens the store that `uri` names. InvalidArgument for an unknown scheme
// (naming those there are); Unavailable if it cannot be opened (in use by
// another process, no permission, damaged).
absl::StatusOr<std::unique_ptr<SnapshotStore>> OpenStore(
    const std::string& uri);

// A full disk as an Unavailable error that metrics can tell from others.
absl::Status NoSpaceError(std::string_view message);
bool IsNoSpace(const absl::Status& status);

absl::Status NoSuchSessionError(const SessionKey& key);  // NotFound

// The factories behind the table.
std::unique_ptr<SnapshotStore> NewMemoryStore();
absl::StatusOr<std::unique_ptr<SnapshotStore>> OpenRocksDbStore(
    const std::string& path);

}  // namespace reprise

#endif  // SERVER_STORE_SNAPSHOT_STORE_H_
