#include "server/store/rocksdb_database.h"

#include <rocksdb/cache.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/listener.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/table_properties_collectors.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "server/store/rocksdb_log.h"
#include "server/store/snapshot_store.h"

namespace reprise {
namespace {

// Keeps RocksDB from recovering by itself after an error: it tries a full disk
// again every 5 seconds, and in version 7.8 such an attempt may wait for ever
// for a flush that has failed. The store opens the database anew instead.
class NoRecovery : public rocksdb::EventListener {
 public:
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status,
                            bool* auto_recovery) override {
    *auto_recovery = false;
  }
};

// Small in memory: about 50 MiB at most, most of it snapshots on their way to
// a blob file.
rocksdb::DBOptions DatabaseOptions() {
  rocksdb::DBOptions options;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  // Every write is synced, so a damaged record before the last is lost data
  // and must be seen, not skipped. The last one may be half written.
  options.wal_recovery_mode =
      rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  // The log is kept until all families it was written for are flushed; the
  // small ones would keep it for ever.
  options.max_total_wal_size = 64 << 20;
  options.max_open_files = 256;
  // One flush and one compaction at a time: the engine wants the cores.
  options.max_background_jobs = 2;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.info_log = std::make_shared<RocksDbLog>(Clock::Real());
  options.max_bgerror_resume_count = 0;
  options.listeners.push_back(std::make_shared<NoRecovery>());
  return options;
}

rocksdb::ColumnFamilyOptions SmallValues(
    const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = cache;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  rocksdb::ColumnFamilyOptions options;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  options.compression = rocksdb::kNoCompression;
  options.write_buffer_size = 4 << 20;
  options.max_write_buffer_number = 2;
  return options;
}

rocksdb::ColumnFamilyOptions Snapshots(
    const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::ColumnFamilyOptions options = SmallValues(cache);
  options.write_buffer_size = 16 << 20;
  options.enable_blob_files = true;
  options.min_blob_size = 1024;
  options.blob_file_size = 64 << 20;
  // Sessions are overwritten turn after turn, so most blobs are garbage soon.
  // Files that are half garbage are rewritten, whatever their age.
  options.enable_blob_garbage_collection = true;
  options.blob_garbage_collection_age_cutoff = 1.0;
  options.blob_garbage_collection_force_threshold = 0.5;
  return options;
}

rocksdb::ColumnFamilyOptions Expiry(
    const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::ColumnFamilyOptions options = SmallValues(cache);
  // Keys are deleted at the front and read from the front: compact soon what
  // would have to be skipped.
  options.table_properties_collector_factories.push_back(
      rocksdb::NewCompactOnDeletionCollectorFactory(
          /*sliding_window_size=*/1024, /*deletion_trigger=*/512));
  return options;
}

// What to do about an error of the system's. RocksDB has no codes for them, but
// ends its messages with the system's words, as we do.
struct Advice {
  int error;
  const char* advice;
};
constexpr Advice kAdvice[] = {
    {EACCES, "give this user the right to write there"},
    {EPERM, "give this user the right to write there"},
    {EROFS, "name a folder that can be written"},
    {ENOTDIR, "name a folder, not a file"},
    {EEXIST, "name a folder, not a file"},
    {EMFILE, "raise the limit of open files (ulimit -n)"},
    {ENFILE, "raise the system's limit of open files (fs.file-max)"},
};

// Unavailable; `what` could not be done for this reason.
absl::Status CannotOpen(const std::string& what, const std::string& reason) {
  const std::string message = absl::StrCat("store: ", what, ": ", reason);
  if (absl::StrContains(reason, std::strerror(ENOSPC))) {
    return NoSpaceError(absl::StrCat(message, "; make room on that disk"));
  }
  for (const Advice& advice : kAdvice) {
    if (!absl::StrContains(reason, std::strerror(advice.error))) continue;
    return absl::UnavailableError(absl::StrCat(message, "; ", advice.advice));
  }
  return absl::UnavailableError(message);
}

// Makes `path` and what is missing above it, for this user alone.
absl::Status MakeDirectories(const std::filesystem::path& path) {
  std::filesystem::path made;
  for (const std::filesystem::path& part : path) {
    made /= part;
    if (made.empty() || mkdir(made.c_str(), 0700) == 0) continue;
    const int error = errno;
    std::error_code ignored;
    if (std::filesystem::is_directory(made, ignored)) continue;
    return CannotOpen(absl::StrCat("cannot make the directory ", made.native()),
                      std::strerror(error));
  }
  return absl::OkStatus();
}

absl::Status OpenError(const std::string& path, const rocksdb::Status& status) {
  const std::string reason = status.ToString();
  // RocksDB has no code of its own for this; both of its messages say "lock".
  if (status.IsIOError() &&
      (absl::StrContains(reason, "While lock file") ||
       absl::StrContains(reason, "lock hold by current process"))) {
    return absl::UnavailableError(
        absl::StrCat("store: ", path, " is in use by another process (", reason,
                     "); end that one, or name another folder"));
  }
  if (status.IsCorruption()) {
    return absl::UnavailableError(absl::StrCat(
        "store: cannot open ", path, ", it is damaged: ", reason,
        "; put a copy back, or move it away to begin with an empty one"));
  }
  return CannotOpen(absl::StrCat("cannot open ", path), reason);
}

}  // namespace

absl::Status FromRocksDb(const rocksdb::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const std::string reason = status.ToString();
  if (status.IsCorruption()) {
    return absl::DataLossError(absl::StrCat("store: ", reason));
  }
  if (status.IsNoSpace()) return NoSpaceError(reason);
  return absl::UnavailableError(absl::StrCat("store: ", reason));
}

absl::StatusOr<std::unique_ptr<RocksDbDatabase>> RocksDbDatabase::Open(
    const std::string& path) {
  RETURN_IF_ERROR(MakeDirectories(path));
  const auto cache = rocksdb::NewLRUCache(8 << 20);
  const std::vector<rocksdb::ColumnFamilyDescriptor> families = {
      {rocksdb::kDefaultColumnFamilyName, SmallValues(cache)},
      {"entries", SmallValues(cache)},
      {"snapshots", Snapshots(cache)},
      {"expiry", Expiry(cache)}};
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status =
      rocksdb::DB::Open(DatabaseOptions(), path, families, &handles, &db);
  if (!status.ok()) return OpenError(path, status);
  return std::unique_ptr<RocksDbDatabase>(
      new RocksDbDatabase(db, std::move(handles)));
}

RocksDbDatabase::~RocksDbDatabase() {
  for (rocksdb::ColumnFamilyHandle* family : families_) {
    db_->DestroyColumnFamilyHandle(family);
  }
  const rocksdb::Status status = db_->Close();
  if (!status.ok()) {
    LogError("store did not close cleanly", {{"reason", status.ToString()}});
  }
}

absl::Status RocksDbDatabase::Write(rocksdb::WriteBatch& batch) {
  rocksdb::WriteOptions options;
  options.sync = true;
  const absl::Status status = FromRocksDb(db_->Write(options, &batch));
  if (!status.ok() && !failed_.exchange(true)) {
    LogError("store cannot write", {{"reason", FromAbsl(status.message())}});
  }
  return status;
}

}  // namespace reprise
