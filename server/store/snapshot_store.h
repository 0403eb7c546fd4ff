// Where snapshots lie: an interface over stores, chosen by URI.
//
//   memory:         in this process, gone with it
//   rocksdb:PATH    an embedded database; the default
//   redis://HOST    a Redis or Valkey server that several servers share; also
//                   rediss: (TLS) and redis+unix: (redis_uri.h)
//
// A new store is one file and one line in the table of snapshot_store.cc.
#ifndef SERVER_STORE_SNAPSHOT_STORE_H_
#define SERVER_STORE_SNAPSHOT_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/durability.h"
#include "server/store/stored_session.h"

namespace rocksdb {
class Env;
}  // namespace rocksdb

namespace reprise {

// Thread-safe. Calls block for as long as the medium takes. Every function may
// return Unavailable when the medium fails (I/O error, disk full, connection
// lost), with the reason. Every function that reads an entry, Put and PutEntry
// too, may return FailedPrecondition for one that a newer program wrote.
class SnapshotStore {
 public:
  virtual ~SnapshotStore() = default;

  // Whether other processes may work on the same sessions: then what one knows
  // of a session may be old.
  virtual bool shared() const { return false; }

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
  // must not exist. Aborted, naming both revisions, if it is not so, or if the
  // stored session was created at another time than this one: it was deleted
  // and made again. Nothing is written then. DataLoss if the stored entry is
  // damaged.
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

  // Deletes what ListExpired lists, looked at once more: those of the sessions
  // whose expiry is set and not after `unix_ms`, or whose entry is damaged.
  // Returns how many there were. On an error some of them may be gone.
  virtual absl::StatusOr<int64_t> DeleteExpired(
      std::span<const SessionKey> keys, int64_t unix_ms);

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

// InvalidArgument for a scheme that is none (naming those there are), for what
// it does not take, and for a durability, whichever it is, if the store has no
// choice of its own. Opens and reads nothing.
absl::Status CheckStoreUri(const std::string& uri,
                           std::optional<Durability> durability = {});

// Opens the store that `uri` names. The errors of CheckStoreUri; Unavailable if
// it cannot be opened (in use by another process, no permission, damaged).
absl::StatusOr<std::unique_ptr<SnapshotStore>> OpenStore(
    const std::string& uri, std::optional<Durability> durability = {});

// What a turn survives that was acknowledged by such a store, for the log.
std::string WhatSurvives(const std::string& uri,
                         std::optional<Durability> durability);
// The URI as it may be shown: the password in it, if there is one, as ***.
std::string WithoutPassword(const std::string& uri);

// A full disk as an Unavailable error that metrics can tell from others.
absl::Status NoSpaceError(std::string_view message);
bool IsNoSpace(const absl::Status& status);
absl::Status NoSuchSessionError(const SessionKey& key);  // NotFound

// The factories behind the table.
std::unique_ptr<SnapshotStore> NewMemoryStore();
struct RocksDbOptions {
  Durability durability = Durability::kFsync;
  // Reads and writes for it; must outlive the store. Null: the system's files.
  rocksdb::Env* env = nullptr;
};
absl::StatusOr<std::unique_ptr<SnapshotStore>> OpenRocksDbStore(
    const std::string& path, const RocksDbOptions& options = {});
absl::StatusOr<std::unique_ptr<SnapshotStore>> OpenRedisStore(
    const std::string& uri);

}  // namespace reprise

#endif  // SERVER_STORE_SNAPSHOT_STORE_H_
