// RocksDB's files on a disk that fails when told to, and that can lose its
// power.
#ifndef TESTS_SERVER_STORE_FAULTY_FILES_H_
#define TESTS_SERVER_STORE_FAULTY_FILES_H_

#include <rocksdb/file_system.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"

namespace reprise {

enum class DiskFault {
  kNoSpace,     // nothing is made, written or synced
  kIoError,     // the same, with EIO
  kShortWrite,  // half is written, then EIO
  kSyncFails,   // EIO of every kind of fsync, nothing else
};
inline constexpr DiskFault kDiskFaults[] = {
    DiskFault::kNoSpace, DiskFault::kIoError, DiskFault::kShortWrite,
    DiskFault::kSyncFails};

// Over the system's files. Thread-safe.
class FaultyFiles : public rocksdb::FileSystemWrapper {
 public:
  FaultyFiles();
  const char* Name() const override { return "FaultyFiles"; }

  // Of the operations from now on that the fault can come upon, the k-th fails,
  // and all after it until Mend. 1 is the next.
  void FailFrom(int64_t k, DiskFault fault);
  // Every operation fails with this probability, with a fault that is drawn.
  void FailWithProbability(double probability, uint32_t seed);
  void Mend();
  int64_t faults() const;  // that came, in all

  void SlowDownSyncs(int64_t ms);  // by so much each

  int64_t log_syncs() const;   // calls that sync a write-ahead log
  int64_t log_writes() const;  // calls that write to one
  uint64_t unsynced_log_bytes() const;

  // From now on nothing reaches the disk.
  void CutPower();
  // To be called when nobody has a file open. Leaves of every file what was
  // synced and a part, which is drawn, of what was not; switches the power on.
  void LoseUnsynced(uint32_t seed);

  rocksdb::IOStatus NewWritableFile(
      const std::string& path, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSWritableFile>* result,
      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus ReopenWritableFile(
      const std::string& path, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSWritableFile>* result,
      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewDirectory(const std::string& path,
                                 const rocksdb::IOOptions& options,
                                 std::unique_ptr<rocksdb::FSDirectory>* result,
                                 rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus DeleteFile(const std::string& path,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;

 private:
  friend class FaultyFile;
  friend class FaultyDirectory;

  enum class Operation { kMake, kAppend, kSync, kChangeFolder };
  static bool CanHit(DiskFault fault, Operation operation);

  std::optional<DiskFault> Next(Operation operation);
  // OK, or the error that this operation is to fail with.
  rocksdb::IOStatus Pass(Operation operation, const std::string& path);
  rocksdb::IOStatus Error(DiskFault fault, const std::string& path) const;
  int64_t slow_ms() const;
  void NoteWritten(const std::string& path, uint64_t bytes);
  uint64_t Written(const std::string& path);
  void NoteSynced(const std::string& path, uint64_t written);

  struct Sizes {
    uint64_t written = 0;
    uint64_t synced = 0;
  };

  mutable Mutex mu_;
  std::optional<DiskFault> fault_ ABSL_GUARDED_BY(mu_);
  int64_t countdown_ ABSL_GUARDED_BY(mu_) = 0;  // until fault_ begins
  double probability_ ABSL_GUARDED_BY(mu_) = 0;
  std::mt19937 random_ ABSL_GUARDED_BY(mu_);
  int64_t slow_ms_ ABSL_GUARDED_BY(mu_) = 0;
  bool powerless_ ABSL_GUARDED_BY(mu_) = false;
  int64_t faults_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t log_syncs_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t log_writes_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, Sizes> sizes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace reprise

#endif  // TESTS_SERVER_STORE_FAULTY_FILES_H_
