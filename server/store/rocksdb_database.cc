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
#include <system_error>
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

// Called by RocksDB on any of its threads, without a lock of the database's.
class RocksDbEvents : public rocksdb::EventListener {
 public:
  // Keeps RocksDB from recovering by itself after an error: it tries a full
  // disk again every 5 seconds, and in version 7.8 such an attempt may wait for
  // ever for a flush that has failed. The store opens the database anew
  // instead.
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status,
                            bool* auto_recovery) override {
    *auto_recovery = false;
  }

  // A snapshot that is damaged, or whose file is gone, would end all writing:
  // rewriting old blob files comes upon it. It is the loss of one session, and
  // without that rewriting nothing reads it but that session's turns.
  void OnBackgroundError(rocksdb::BackgroundErrorReason reason,
                         rocksdb::Status* error) override {
    if (reason != rocksdb::BackgroundErrorReason::kCompaction) return;
    if (!error->IsCorruption() && !error->IsPathNotFound()) return;
    if (keeps_garbage_) return;  // so it was something else
    if (!met_damage_.exchange(true)) {
      LogError(
          "store met damaged data while it made room; it will not give "
          "back the room of old snapshots until it is opened again",
          {{"reason", error->ToString()}});
    }
    *error = rocksdb::Status::OK();
  }

  // True once, after damage was met: stop rewriting blob files, which this
  // object cannot do from inside RocksDB's calls.
  bool TakeDamage() {
    return met_damage_ && !keeps_garbage_ && !keeps_garbage_.exchange(true);
  }

 private:
  std::atomic<bool> met_damage_{false};
  std::atomic<bool> keeps_garbage_{false};
};

namespace {

// Small in memory: about 50 MiB at most, most of it snapshots on their way to
// a blob file.
rocksdb::DBOptions DatabaseOptions(
    const RocksDbOptions& store, const std::shared_ptr<RocksDbEvents>& events) {
  rocksdb::DBOptions options;
  if (store.env != nullptr) options.env = store.env;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  // If every write is synced, a damaged record before the last is lost data
  // and must be seen, not skipped; the last one may be half written. If not,
  // the end of the machine leaves any part of what was not synced, in any
  // order: what comes before the first gap is a state that there was.
  options.wal_recovery_mode =
      store.durability == Durability::kFsync
          ? rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords
          : rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  // Without a log the families agree only if they are flushed together.
  options.atomic_flush = store.durability == Durability::kNone;
  // The log is kept until all families it was written for are flushed; the
  // small ones would keep it for ever.
  options.max_total_wal_size = 64 << 20;
  options.max_open_files = 256;
  // With its 16, a limit of memory (ulimit -v) that one of these threads meets
  // ends the process.
  options.max_file_opening_threads = 1;
  // One flush and one compaction at a time: the engine wants the cores.
  options.max_background_jobs = 2;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.info_log = std::make_shared<RocksDbLog>(Clock::Real());
  options.max_bgerror_resume_count = 0;
  options.listeners.push_back(events);
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
struct ErrorAdvice {
  int error;
  const char* advice;
};
constexpr ErrorAdvice kErrorAdvice[] = {
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
  for (const ErrorAdvice& advice : kErrorAdvice) {
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

absl::Status NoThreadError(const std::string& path,
                           const std::system_error& error) {
  return absl::UnavailableError(absl::StrCat(
      "store: cannot open ", path, ": cannot start a thread: ", error.what(),
      "; raise the limit of threads (ulimit -u) or of memory (ulimit -v)"));
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

absl::Status RocksDbDatabase::OpenError(const std::string& path,
                                        const RocksDbOptions& options,
                                        const rocksdb::Status& status) {
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
        "; put a copy back, or move it away to begin with an empty one",
        options.durability == Durability::kFsync
            ? "; if the damage is in its log, --durability=async opens it "
              "without what comes after the damage"
            : ""));
  }
  return CannotOpen(absl::StrCat("cannot open ", path), reason);
}

absl::Status RocksDbDatabase::TryThread(const std::string& path) {
  try {
    std::thread([] {}).join();
    return absl::OkStatus();
  } catch (const std::system_error& error) {
    return NoThreadError(path, error);
  }
}

absl::StatusOr<std::unique_ptr<RocksDbDatabase>> RocksDbDatabase::Open(
    const std::string& path, const RocksDbOptions& options) {
  RETURN_IF_ERROR(MakeDirectories(path));
  RETURN_IF_ERROR(TryThread(path));
  try {
    return OpenIn(path, options);
  } catch (const std::system_error& error) {
    return NoThreadError(path, error);
  }
}

absl::StatusOr<std::unique_ptr<RocksDbDatabase>> RocksDbDatabase::OpenIn(
    const std::string& path, const RocksDbOptions& options) {
  const auto cache = rocksdb::NewLRUCache(8 << 20);
  const std::vector<rocksdb::ColumnFamilyDescriptor> families = {
      {rocksdb::kDefaultColumnFamilyName, SmallValues(cache)},
      {"entries", SmallValues(cache)},
      {"snapshots", Snapshots(cache)},
      {"expiry", Expiry(cache)}};
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* db = nullptr;
  auto events = std::make_shared<RocksDbEvents>();
  const rocksdb::Status status = rocksdb::DB::Open(
      DatabaseOptions(options, events), path, families, &handles, &db);
  if (!status.ok()) return OpenError(path, options, status);
  std::unique_ptr<RocksDbDatabase> database(new RocksDbDatabase(
      options.durability, std::move(events), db, std::move(handles)));
  if (options.durability != Durability::kFsync) {
    database->persister_ = std::thread(
        [database = database.get()] { database->KeepPersisting(); });
  }
  return database;
}

RocksDbDatabase::RocksDbDatabase(
    Durability durability, std::shared_ptr<RocksDbEvents> events,
    rocksdb::DB* db, std::vector<rocksdb::ColumnFamilyHandle*> families)
    : durability_(durability),
      events_(std::move(events)),
      db_(db),
      families_(std::move(families)) {}

RocksDbDatabase::~RocksDbDatabase() {
  if (persister_.joinable()) {
    {
      MutexLock lock(mu_);
      stopping_ = true;
      stop_.NotifyAll();
    }
    persister_.join();
  }
  for (rocksdb::ColumnFamilyHandle* family : families_) {
    db_->DestroyColumnFamilyHandle(family);
  }
  const rocksdb::Status status = db_->Close();
  if (!status.ok()) {
    LogError("store did not close cleanly", {{"reason", status.ToString()}});
  }
}

absl::Status RocksDbDatabase::TryWriting(const std::string& path,
                                         const RocksDbOptions& options) {
  rocksdb::Env* const env =
      options.env != nullptr ? options.env : rocksdb::Env::Default();
  const std::string file = path + "/WRITABLE";  // no name of RocksDB's
  const std::string bytes(64 << 10, 'w');
  const rocksdb::Status status =
      rocksdb::WriteStringToFile(env, bytes, file, /*should_sync=*/true);
  env->DeleteFile(file).PermitUncheckedError();
  return FromRocksDb(status);
}

absl::Status RocksDbDatabase::Write(rocksdb::WriteBatch& batch) {
  if (events_->TakeDamage()) {
    RETURN_IF_ERROR(NoteFailure(FromRocksDb(db_->SetOptions(
        snapshots(), {{"enable_blob_garbage_collection", "false"}}))));
  }
  rocksdb::WriteOptions options;
  options.sync = durability_ == Durability::kFsync;
  options.disableWAL = durability_ == Durability::kNone;
  const absl::Status status = FromRocksDb(db_->Write(options, &batch));
  unsynced_ = true;
  return NoteFailure(status);
}

absl::Status RocksDbDatabase::NoteFailure(const absl::Status& status) {
  if (!status.ok() && !failed_.exchange(true)) {
    LogError("store cannot write", {{"reason", FromAbsl(status.message())}});
  }
  return status;
}

// ---- What is not synced with its write --------------------------------------

absl::Status RocksDbDatabase::Persist() {
  if (failed_ || !unsynced_.exchange(false)) return absl::OkStatus();
  if (durability_ == Durability::kAsync) {
    // A write of nothing that is synced, and with it all before it. SyncWAL
    // would not keep others waiting for as long as the disk takes, but beside a
    // write that fails it runs into an assertion of RocksDB 7.8, and the next
    // writes hear of "a previous error" instead of its reason.
    rocksdb::WriteBatch nothing;
    nothing.PutLogData("");
    rocksdb::WriteOptions synced;
    synced.sync = true;
    return FromRocksDb(db_->Write(synced, &nothing));
  }
  return FromRocksDb(db_->Flush(rocksdb::FlushOptions(), families_));
}

void RocksDbDatabase::KeepPersisting() {
  const int64_t pause_ms =
      durability_ == Durability::kAsync ? kAsyncSyncMs : kNoneFlushMs;
  mu_.Lock();
  while (true) {
    const bool last = stopping_;  // nothing is written any more
    mu_.Unlock();
    static_cast<void>(NoteFailure(Persist()));
    mu_.Lock();
    if (last) break;
    if (!stopping_) stop_.WaitFor(mu_, pause_ms);
  }
  mu_.Unlock();
}

}  // namespace reprise
