// Sessions in one opened database:
//
//   column family   key            value
//   entries         entry key      entry              (entry_codec.h)
//   snapshots       snapshot key   snapshot, in blob files
//                   outcome key    outcome
//                   entry key      snapshot of an entry of version 1
//   expiry          expiry key     nothing
//
// A snapshot stays where it was written when it becomes a checkpoint; only
// those of version 1 move, with the first write to their session.
//
// Every change is one write over all three, so they always agree. The database
// belongs to one process (its LOCK file), which is why locks of our own are
// enough for compare-and-set, and why the counts can live in memory.
#ifndef SERVER_STORE_ROCKSDB_SESSIONS_H_
#define SERVER_STORE_ROCKSDB_SESSIONS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/store/key_locks.h"
#include "server/store/rocksdb_database.h"
#include "server/store/snapshot_store.h"
#include "server/store/store_usage.h"

namespace reprise {

// The functions of SnapshotStore, for as long as writing works. Thread-safe.
class RocksDbSessions {
 public:
  // As RocksDbDatabase::Open; then counts the sessions.
  static absl::StatusOr<std::unique_ptr<RocksDbSessions>> Open(
      const std::string& path, const RocksDbOptions& options);

  absl::StatusOr<StoredSession> Put(const SessionKey& key,
                                    std::optional<uint64_t> expected_revision,
                                    const StoredSession& session,
                                    std::string_view snapshot,
                                    const SnapshotStore::PutOptions& options);
  absl::Status PutEntry(const SessionKey& key, uint64_t expected_revision,
                        const StoredSession& session);
  absl::StatusOr<StoredSession> GetEntry(const SessionKey& key);
  absl::Status Get(const SessionKey& key, StoredSession* session,
                   std::string* snapshot);
  absl::StatusOr<std::string> GetSnapshot(const SessionKey& key,
                                          uint64_t revision);
  absl::StatusOr<std::string> GetOutcome(const SessionKey& key,
                                         uint64_t revision);
  absl::Status Delete(const SessionKey& key);
  absl::StatusOr<int64_t> DeleteExpired(std::span<const SessionKey> keys,
                                        int64_t unix_ms);
  absl::StatusOr<std::vector<StoredSession>> List(std::string_view tenant,
                                                  std::string_view after,
                                                  int64_t limit);
  absl::StatusOr<std::vector<SessionKey>> ListExpired(int64_t unix_ms,
                                                      int64_t limit);
  const StoreUsage& usage() const { return usage_; }

  // Whether a write failed. All others will, until the database is closed and
  // opened again; reading goes on.
  bool failed() const { return database_->failed(); }
  // Whether a write to this session failed: then only opening again tells
  // whether it is in the log, and what is read until then may be taken back.
  bool InDoubt(const SessionKey& key) const;

 private:
  explicit RocksDbSessions(std::unique_ptr<RocksDbDatabase> database)
      : database_(std::move(database)) {}

  struct Entry {
    StoredSession session;
    bool version1 = false;
  };

  rocksdb::Status CountSessions();
  absl::StatusOr<std::optional<Entry>> ReadEntry(
      const rocksdb::ReadOptions& options, const std::string& entry_key);
  // NotFound if there is no such session.
  absl::StatusOr<Entry> ReadExisting(const rocksdb::ReadOptions& options,
                                     const SessionKey& key);
  // DataLoss if it is not there, its file neither, or it has another size than
  // its entry says.
  absl::StatusOr<std::string> ReadSnapshot(const rocksdb::ReadOptions& options,
                                           const std::string& entry_key,
                                           const Entry& entry,
                                           uint64_t revision);
  absl::StatusOr<std::string> ReadBlob(const rocksdb::ReadOptions& options,
                                       const std::string& key, uint64_t bytes);
  // Writes what changes these entries.
  absl::Status Write(std::span<const std::string> entry_keys,
                     rocksdb::WriteBatch& batch);
  // Adds the entry, and its line in the expiry index in place of the old one.
  void PutEntryInBatch(const std::string& entry_key, const StoredSession* old,
                       const StoredSession& session,
                       rocksdb::WriteBatch& batch);
  // Adds what becomes of the old snapshots, and of the old outcome.
  absl::Status DropInBatch(const std::string& entry_key, const Entry& old,
                           const StoredSession& now,
                           rocksdb::WriteBatch& batch);
  StoredSession DeleteInBatch(const std::string& entry_key,
                              const absl::StatusOr<std::optional<Entry>>& old,
                              rocksdb::WriteBatch& batch);
  void DeleteBlobsInBatch(const std::string& entry_key, const Entry& old,
                          rocksdb::WriteBatch& batch);
  absl::StatusOr<bool> PassOverExpiry(const std::string& expiry_key);
  // Logs what is damaged, once for each key: it is found again by every sweep
  // and every list.
  void LogDamage(const char* what, const rocksdb::Slice& key,
                 const absl::Status& status);
  rocksdb::DB& db() { return database_->db(); }

  const std::unique_ptr<RocksDbDatabase> database_;  // synchronises itself

  // Of entries; held from reading one until it is written. Not mutexes: the
  // writes that come while one is synced are synced together after it.
  KeyLocks entry_locks_;
  StoreUsage usage_;  // synchronises itself

  mutable Mutex doubt_mu_;
  std::set<std::string> in_doubt_ ABSL_GUARDED_BY(doubt_mu_);  // entry keys

  Mutex damage_mu_;
  std::set<std::string> damage_logged_ ABSL_GUARDED_BY(damage_mu_);  // keys
};

}  // namespace reprise

#endif  // SERVER_STORE_ROCKSDB_SESSIONS_H_
