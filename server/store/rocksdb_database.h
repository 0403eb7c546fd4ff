// The database under the RocksDB store: how it is opened and written, and how
// its errors read. For rocksdb_sessions.cc alone.
#ifndef SERVER_STORE_ROCKSDB_DATABASE_H_
#define SERVER_STORE_ROCKSDB_DATABASE_H_

#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reprise {

// OK; Unavailable with the reason, full disks told apart (IsNoSpace); DataLoss
// for damaged data.
absl::Status FromRocksDb(const rocksdb::Status& status);

// Thread-safe. Belongs to one process at a time.
class RocksDbDatabase {
 public:
  // Makes the folder, and those above it, for this user alone. Unavailable if
  // it cannot be opened, saying whether it is in use or damaged.
  static absl::StatusOr<std::unique_ptr<RocksDbDatabase>> Open(
      const std::string& path);
  ~RocksDbDatabase();

  // Applies the batch, all of it or nothing, and returns when it is on the
  // disk. Unavailable if that failed. Then failed() is true and writing will
  // fail until the database is opened anew; whether that finds the batch in the
  // log is open. Reading goes on.
  absl::Status Write(rocksdb::WriteBatch& batch);
  bool failed() const { return failed_; }

  rocksdb::DB& db() { return *db_; }
  rocksdb::ColumnFamilyHandle* entries() { return families_[1]; }
  rocksdb::ColumnFamilyHandle* snapshots() { return families_[2]; }
  rocksdb::ColumnFamilyHandle* expiry() { return families_[3]; }

 private:
  RocksDbDatabase(rocksdb::DB* db,
                  std::vector<rocksdb::ColumnFamilyHandle*> families)
      : db_(db), families_(std::move(families)) {}

  const std::unique_ptr<rocksdb::DB> db_;
  // The default one, which must be open and is not used, then the three above.
  const std::vector<rocksdb::ColumnFamilyHandle*> families_;

  std::atomic<bool> failed_{false};
};

}  // namespace reprise

#endif  // SERVER_STORE_ROCKSDB_DATABASE_H_
