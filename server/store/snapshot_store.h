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

// What is known of a stored session without reading its snapshot.
struct StoredSession {
  std::string id;
  uint64_t revision = 0;
  uint64_t tokens = 0;
  uint64_t snapshot_bytes = 0;
  int64_t created_unix_ms = 0;
  int64_t updated_unix_ms = 0;
  int64_t expires_unix_ms = 0;  // 0 = never
  int64_t ttl_ms = 0;           // 0 = none
  std::string forked_from;      // id, or empty
};

// Thread-safe. Calls block for as long as the medium takes. Every function may
// return Unavailable when the medium fails (I/O error, disk full, connection
// lost), with the reason.
class SnapshotStore {
 public:
  virtual ~SnapshotStore() = default;

  // Writes the session, both parts or neither; on OK it survives a crash if
  // the store is a durable one. Compare-and-set: `expected_revision` is the
  // stored one, none = the session must not exist. Aborted, naming both
  // revisions, if it is not so; nothing is written then. The store itself sets
  // `id` and `snapshot_bytes` of what it keeps. DataLoss if the stored entry
  // is damaged.
  virtual absl::Status Put(const SessionKey& key,
                           std::optional<uint64_t> expected_revision,
                           const StoredSession& session,
                           std::string_view snapshot) = 0;

  // Replaces the entry but not the snapshot (nor its size). Compare-and-set as
  // Put.
  virtual absl::Status PutEntry(const SessionKey& key,
                                uint64_t expected_revision,
                                const StoredSession& session) = 0;

  // NotFound if there is no such session. DataLoss if the entry is damaged.
  virtual absl::StatusOr<StoredSession> GetEntry(const SessionKey& key) = 0;
  // The entry and the snapshot of one and the same Put. NotFound, DataLoss.
  virtual absl::Status Get(const SessionKey& key, StoredSession* session,
                           std::string* snapshot) = 0;

  // NotFound if there is no such session. Deletes damaged ones too.
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

  // Bytes that the snapshots take, about; and how many sessions there are.
  struct Usage {
    uint64_t bytes = 0;
    uint64_t sessions = 0;
  };
  virtual absl::StatusOr<Usage> GetUsage() = 0;
};

// Opens the store that `uri` names. InvalidArgument for an unknown scheme
// (naming those there are); Unavailable if it cannot be opened (in use by
// another process, no permission, damaged).
absl::StatusOr<std::unique_ptr<SnapshotStore>> OpenStore(
    const std::string& uri);

// A full disk as an Unavailable error that metrics can tell from others.
absl::Status NoSpaceError(std::string_view message);
bool IsNoSpace(const absl::Status& status);

// The compare of compare-and-set: OK if they are equal, else Aborted, naming
// both; none = no such session. For stores.
absl::Status CheckRevision(std::string_view id,
                           std::optional<uint64_t> stored_revision,
                           std::optional<uint64_t> expected_revision);

absl::Status NoSuchSessionError(const SessionKey& key);  // NotFound

// The factories behind the table.
std::unique_ptr<SnapshotStore> NewMemoryStore();
absl::StatusOr<std::unique_ptr<SnapshotStore>> OpenRocksDbStore(
    const std::string& path);

}  // namespace reprise

#endif  // SERVER_STORE_SNAPSHOT_STORE_H_
