// The database under the RocksDB store: how it is opened and written, and how
// its errors read. For the files of the RocksDB store alone.
#ifndef SERVER_STORE_ROCKSDB_DATABASE_H_
#define SERVER_STORE_ROCKSDB_DATABASE_H_

#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/store/snapshot_store.h"

namespace reprise {

// OK; Unavailable with the reason, full disks told apart (IsNoSpace); DataLoss
// for damaged data.
absl::Status FromRocksDb(const rocksdb::Status& status);

// What RocksDB reports while it runs; see rocksdb_database.cc.
class RocksDbEvents;

// Thread-safe. Belongs to one process at a time. Has a thread of its own if not
// every write is synced.
class RocksDbDatabase {
 public:
  // Makes the folder, and those above it, for this user alone. Unavailable if
  // it cannot be opened, saying whether it is in use or damaged, or if there is
  // no thread for it.
  static absl::StatusOr<std::unique_ptr<RocksDbDatabase>> Open(
      const std::string& path, const RocksDbOptions& options);
  // What a database at `path` that cannot be opened is reported as, or whose
  // entries cannot be read then: Unavailable with the reason and what to do.
  static absl::Status OpenError(const std::string& path,
                                const RocksDbOptions& options,
                                const rocksdb::Status& status);
  // Brings to the disk what is not there yet, and logs if that fails.
  ~RocksDbDatabase();

  // Whether a file can be made in the folder, written and synced; it is removed
  // again.
  static absl::Status TryWriting(const std::string& path,
                                 const RocksDbOptions& options);

  // Whether a thread can be started; Open asks, too. RocksDB does not survive
  // that one of its own cannot: `path` stays locked, and closing the next
  // database ends the process. What is left is the moment in between.
  static absl::Status TryThread(const std::string& path);

  // Applies the batch, all of it or nothing, and returns when it is as far on
  // its way to the disk as the durability says. Unavailable if that failed.
  // Then failed() is true and writing will fail until the database is opened
  // anew; whether that finds the batch in the log is open. Reading goes on.
  absl::Status Write(rocksdb::WriteBatch& batch);
  // Also after a sync in the background failed.
  bool failed() const { return failed_; }

  rocksdb::DB& db() { return *db_; }
  rocksdb::ColumnFamilyHandle* entries() { return families_[1]; }
  rocksdb::ColumnFamilyHandle* snapshots() { return families_[2]; }
  rocksdb::ColumnFamilyHandle* expiry() { return families_[3]; }

 private:
  RocksDbDatabase(Durability durability, std::shared_ptr<RocksDbEvents> events,
                  rocksdb::DB* db,
                  std::vector<rocksdb::ColumnFamilyHandle*> families);

  // Open, in a folder that is there; std::system_error if there is no thread.
  static absl::StatusOr<std::unique_ptr<RocksDbDatabase>> OpenIn(
      const std::string& path, const RocksDbOptions& options);
  absl::Status NoteFailure(const absl::Status& status);
  // Brings to the disk what was written since it was last called.
  absl::Status Persist();
  void KeepPersisting();

  const Durability durability_;
  const std::shared_ptr<RocksDbEvents> events_;  // shared: with RocksDB
  const std::unique_ptr<rocksdb::DB> db_;
  // The default one, which must be open and is not used, then the three above.
  const std::vector<rocksdb::ColumnFamilyHandle*> families_;

  std::atomic<bool> failed_{false};
  std::atomic<bool> unsynced_{false};  // something was written since Persist

  Mutex mu_;
  CondVar stop_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread persister_;  // last: it uses the others
};

}  // namespace reprise

#endif  // SERVER_STORE_ROCKSDB_DATABASE_H_
