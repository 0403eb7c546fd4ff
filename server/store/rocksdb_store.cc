// The RocksDB store: sessions in an embedded database, which is opened anew
// after a write failed.
//
// RocksDB refuses all writes after one has failed (disk full, I/O error). Its
// own way back, Resume, was tried: version 7.8 gives up on most errors, and
// waits for ever on some. Opening the database again replays the log and always
// leads to a known state, or fails and says why. What failed is closed for
// that, so it is tried only when a small file can be written and synced: a disk
// that is full or broken for writing can still be read.
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/log.h"
#include "engine/base/mutex.h"
#include "engine/base/status_macros.h"
#include "server/store/rocksdb_database.h"
#include "server/store/rocksdb_sessions.h"
#include "server/store/snapshot_store.h"

namespace reprise {
namespace {

// Which folder a path leads to: another one after it was removed and made
// again.
struct FolderId {
  dev_t device = 0;
  ino_t inode = 0;

  friend bool operator==(const FolderId&, const FolderId&) = default;
};

// All zeros if there is none.
FolderId FolderAt(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return {};
  return {.device = status.st_dev, .inode = status.st_ino};
}

// Whether there is room to open the database: its log is written to tables
// then, and some small files are made. NoSpaceError if not.
absl::Status CheckSpace(const std::string& path) {
  struct statvfs disk {};
  if (statvfs(path.c_str(), &disk) != 0) return absl::OkStatus();
  uintmax_t needed = 1 << 20;
  std::error_code error;
  for (std::filesystem::directory_iterator it(path, error), end;
       !error && it != end; it.increment(error)) {
    std::error_code gone;  // by a compaction, meanwhile
    const uintmax_t size = it->file_size(gone);
    if (!gone && it->path().extension() == ".log") needed += size;
  }
  const uintmax_t free = uintmax_t{disk.f_bavail} * disk.f_frsize;
  if (free >= needed) return absl::OkStatus();
  return NoSpaceError(absl::StrCat("store: ", free, " bytes are free for ",
                                   path, ", writing again takes ", needed));
}

class RocksDbStore : public SnapshotStore {
 public:
  RocksDbStore(std::string path, const RocksDbOptions& options,
               std::unique_ptr<RocksDbSessions> sessions)
      : path_(std::move(path)),
        options_(options),
        folder_(FolderAt(path_)),
        sessions_(std::move(sessions)) {}

  absl::StatusOr<StoredSession> Put(const SessionKey& key,
                                    std::optional<uint64_t> expected_revision,
                                    const StoredSession& session,
                                    std::string_view snapshot,
                                    const PutOptions& options) override {
    RETURN_IF_ERROR(CheckFolder());
    ASSIGN_OR_RETURN(const Use sessions, Enter(Access::kWrite));
    return sessions->Put(key, expected_revision, session, snapshot, options);
  }
  absl::Status PutEntry(const SessionKey& key, uint64_t expected_revision,
                        const StoredSession& session) override {
    RETURN_IF_ERROR(CheckFolder());
    ASSIGN_OR_RETURN(const Use sessions, Enter(Access::kWrite));
    return sessions->PutEntry(key, expected_revision, session);
  }
  absl::StatusOr<StoredSession> GetEntry(const SessionKey& key) override {
    ASSIGN_OR_RETURN(const Use sessions, Enter(Access::kRead, &key));
    return sessions->GetEntry(key);
  }
  absl::Status Get(const SessionKey& key, StoredSession* session,
                   std::string* snapshot) override {
    ASSIGN_OR_RETURN(const Use sessions, Enter(Access::kRead, &key));
    return sessions->Get(key, session, snapshot);
  }
  absl::StatusOr<std::string> GetSnapshot(const SessionKey& key,
                                          uint64_t revision) override {
    ASSIGN_OR_RETURN(const Use sessions, Enter(Access::kRead, &key));
    return sessions->GetSnapshot(key, revision);
  }
  absl::StatusOr<std::string> GetOutcome(const SessionKey& key,
                                         uint64_t revision) override {
    ASSIGN_OR_RETURN(const Use sessions, Enter(Access::kRead, &key));
    return sessions->GetOutcome(key, revision);
  }
  absl::Status Delete(const SessionKey& key) override {
    ASSIGN_OR_RETURN(const Use sessions, Enter(Access::kWrite));
    return sessions->Delete(key);
  }
  absl::StatusOr<int64_t> DeleteExpired(std::span<const SessionKey> keys,
                                        int64_t unix_ms) override {
    ASSIGN_OR_RETURN(const Use sessions, Enter(Access::kWrite));
    return sessions->DeleteExpired(keys, unix_ms);
  }
  absl::StatusOr<std::vector<StoredSession>> List(std::string_view tenant,
                                                  std::string_view after,
                                                  int64_t limit) override {
    ASSIGN_OR_RETURN(const Use sessions, Enter(Access::kRead));
    return sessions->List(tenant, after, limit);
  }
  absl::StatusOr<std::vector<SessionKey>> ListExpired(int64_t unix_ms,
                                                      int64_t limit) override {
    ASSIGN_OR_RETURN(const Use sessions, Enter(Access::kRead));
    return sessions->ListExpired(unix_ms, limit);
  }
  absl::StatusOr<Usage> GetUsage() override {
    ASSIGN_OR_RETURN(const Use sessions, Enter(Access::kRead));
    return sessions->usage().All();
  }
  absl::StatusOr<Usage> GetTenantUsage(std::string_view tenant) override {
    ASSIGN_OR_RETURN(const Use sessions, Enter(Access::kRead));
    return sessions->usage().Of(tenant);
  }

 private:
  // The database is not closed while one of these lives.
  class Use {
   public:
    Use(RocksDbStore* store, RocksDbSessions* sessions)
        : store_(store), sessions_(sessions) {}
    Use(Use&& other) noexcept
        : store_(std::exchange(other.store_, nullptr)),
          sessions_(other.sessions_) {}
    ~Use() {
      if (store_ != nullptr) store_->Leave();
    }
    RocksDbSessions* operator->() const { return sessions_; }

   private:
    RocksDbStore* store_;  // null when moved from
    RocksDbSessions* sessions_;
  };

  enum class Access { kRead, kWrite };

  // Files that were removed can still be written, and are gone with the
  // process: nothing that lies in them may be acknowledged.
  absl::Status CheckFolder() const {
    if (FolderAt(path_) == folder_) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(
        "store: ", path_,
        " was removed or replaced while the server ran; restart it"));
  }

  // First opens the database anew if it is closed, or if it has failed and is
  // to be written, or to be read where that write is in doubt; waits while
  // another thread does. Unavailable if it cannot be opened: the next caller
  // tries again. `key` is what is to be read, null for more than one session.
  absl::StatusOr<Use> Enter(Access access, const SessionKey* key = nullptr) {
    MutexLock lock(mu_);
    while (true) {
      if (reopening_) {
        changed_.Wait(mu_);
      } else if (sessions_ == nullptr ||
                 (sessions_->failed() &&
                  (access == Access::kWrite ||
                   (key != nullptr && sessions_->InDoubt(*key))))) {
        RETURN_IF_ERROR(Reopen());
      } else {
        ++users_;
        return Use(this, sessions_.get());
      }
    }
  }

  void Leave() {
    MutexLock lock(mu_);
    if (--users_ == 0) changed_.NotifyAll();
  }

  // Gives the lock back while it works: only `reopening_` keeps others out.
  absl::Status Reopen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    reopening_ = true;
    mu_.Unlock();
    absl::Status can_open = CheckSpace(path_);
    if (can_open.ok()) {
      can_open = RocksDbDatabase::TryWriting(path_, options_);
    }
    if (can_open.ok()) can_open = RocksDbDatabase::TryThread(path_);
    mu_.Lock();
    if (!can_open.ok() && sessions_ != nullptr) {
      // It can still be read: not given up for an attempt that must fail.
      reopening_ = false;
      changed_.NotifyAll();
      return can_open;
    }
    while (users_ > 0) changed_.Wait(mu_);
    std::unique_ptr<RocksDbSessions> old = std::move(sessions_);
    mu_.Unlock();
    old.reset();  // gives the database's LOCK back
    absl::StatusOr<std::unique_ptr<RocksDbSessions>> opened =
        RocksDbSessions::Open(path_, options_);
    mu_.Lock();
    reopening_ = false;
    changed_.NotifyAll();
    RETURN_IF_ERROR(opened.status());
    sessions_ = *std::move(opened);
    LogInfo("store opened again after an error");
    return absl::OkStatus();
  }

  const std::string path_;
  const RocksDbOptions options_;
  const FolderId folder_;  // that path_ led to when it was opened
  Mutex mu_;
  CondVar changed_;  // users_ became 0, or reopening_ false
  // Null after it could not be opened again.
  std::unique_ptr<RocksDbSessions> sessions_ ABSL_GUARDED_BY(mu_);
  int64_t users_ ABSL_GUARDED_BY(mu_) = 0;
  bool reopening_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SnapshotStore>> OpenRocksDbStore(
    const std::string& path, const RocksDbOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<RocksDbSessions> sessions,
                   RocksDbSessions::Open(path, options));
  return std::make_unique<RocksDbStore>(path, options, std::move(sessions));
}

}  // namespace reprise
