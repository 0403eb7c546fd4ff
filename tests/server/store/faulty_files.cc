#include "tests/server/store/faulty_files.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

namespace reprise {

using rocksdb::DataVerificationInfo;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

namespace {

bool IsLog(const std::string& path) { return path.ends_with(".log"); }

}  // namespace

class FaultyFile : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  FaultyFile(FaultyFiles& files, std::string path,
             std::unique_ptr<rocksdb::FSWritableFile> file)
      : FSWritableFileOwnerWrapper(std::move(file)),
        files_(files),
        path_(std::move(path)) {}

  IOStatus Append(const Slice& data, const IOOptions& options,
                  IODebugContext* debug) override {
    const auto fault = files_.Next(FaultyFiles::Operation::kAppend);
    if (fault.has_value() && *fault != DiskFault::kShortWrite) {
      return files_.Error(*fault, path_);
    }
    const Slice part(data.data(),
                     fault.has_value() ? data.size() / 2 : data.size());
    const IOStatus status = target()->Append(part, options, debug);
    if (!status.ok()) return status;
    files_.NoteWritten(path_, part.size());
    return fault.has_value() ? files_.Error(*fault, path_) : status;
  }
  IOStatus Append(const Slice& data, const IOOptions& options,
                  const DataVerificationInfo&, IODebugContext* debug) override {
    return Append(data, options, debug);
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
    return Synced([&] { return target()->Sync(options, debug); });
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return Synced([&] { return target()->Fsync(options, debug); });
  }

 private:
  template <typename Call>
  IOStatus Synced(const Call& sync) {
    const uint64_t written = files_.Written(path_);
    IOStatus status = files_.Pass(FaultyFiles::Operation::kSync, path_);
    std::this_thread::sleep_for(std::chrono::milliseconds(files_.slow_ms()));
    if (status.ok()) status = sync();
    if (status.ok()) files_.NoteSynced(path_, written);
    return status;
  }

  FaultyFiles& files_;
  const std::string path_;
};

class FaultyDirectory : public rocksdb::FSDirectoryWrapper {
 public:
  FaultyDirectory(FaultyFiles& files, std::string path,
                  std::unique_ptr<rocksdb::FSDirectory> directory)
      : FSDirectoryWrapper(std::move(directory)),
        files_(files),
        path_(std::move(path)) {}

  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    const IOStatus status = files_.Pass(FaultyFiles::Operation::kSync, path_);
    return status.ok() ? FSDirectoryWrapper::Fsync(options, debug) : status;
  }
  IOStatus FsyncWithDirOptions(const IOOptions& options, IODebugContext* debug,
                               const rocksdb::DirFsyncOptions&) override {
    return Fsync(options, debug);
  }

 private:
  FaultyFiles& files_;
  const std::string path_;
};

FaultyFiles::FaultyFiles()
    : FileSystemWrapper(rocksdb::FileSystem::Default()) {}

// ---- Faults -----------------------------------------------------------------

bool FaultyFiles::CanHit(DiskFault fault, Operation operation) {
  switch (fault) {
    case DiskFault::kNoSpace:
    case DiskFault::kIoError:
      return true;
    case DiskFault::kShortWrite:
      return operation == Operation::kAppend;
    case DiskFault::kSyncFails:
      return operation == Operation::kSync;
  }
  return false;
}

void FaultyFiles::FailFrom(int64_t k, DiskFault fault) {
  MutexLock lock(mu_);
  fault_ = fault;
  countdown_ = k;
}

void FaultyFiles::FailWithProbability(double probability, uint32_t seed) {
  MutexLock lock(mu_);
  probability_ = probability;
  random_.seed(seed);
}

void FaultyFiles::Mend() {
  MutexLock lock(mu_);
  fault_.reset();
  probability_ = 0;
}

std::optional<DiskFault> FaultyFiles::Next(Operation operation) {
  MutexLock lock(mu_);
  std::optional<DiskFault> fault;
  if (powerless_) return DiskFault::kIoError;
  if (fault_.has_value() && CanHit(*fault_, operation) && --countdown_ <= 0) {
    fault = fault_;
  } else if (probability_ > 0 && std::uniform_real_distribution<double>(
                                     0, 1)(random_) < probability_) {
    fault = kDiskFaults[random_() % std::size(kDiskFaults)];
    if (!CanHit(*fault, operation)) fault.reset();
  }
  if (fault.has_value()) ++faults_;
  return fault;
}

IOStatus FaultyFiles::Error(DiskFault fault, const std::string& path) const {
  if (fault == DiskFault::kNoSpace) {
    IOStatus status = IOStatus::NoSpace("made up, " + path, strerror(ENOSPC));
    status.SetRetryable(true);  // as the system's files say
    return status;
  }
  return IOStatus::IOError("made up, " + path, strerror(EIO));
}

IOStatus FaultyFiles::Pass(Operation operation, const std::string& path) {
  const std::optional<DiskFault> fault = Next(operation);
  return fault.has_value() ? Error(*fault, path) : IOStatus::OK();
}

// ---- What was written, what was synced --------------------------------------

void FaultyFiles::NoteWritten(const std::string& path, uint64_t bytes) {
  MutexLock lock(mu_);
  sizes_[path].written += bytes;
  if (IsLog(path)) ++log_writes_;
}

uint64_t FaultyFiles::Written(const std::string& path) {
  MutexLock lock(mu_);
  if (IsLog(path)) ++log_syncs_;
  return sizes_[path].written;
}

void FaultyFiles::NoteSynced(const std::string& path, uint64_t written) {
  MutexLock lock(mu_);
  Sizes& sizes = sizes_[path];
  sizes.synced = std::max(sizes.synced, written);
}

int64_t FaultyFiles::faults() const {
  MutexLock lock(mu_);
  return faults_;
}
int64_t FaultyFiles::log_syncs() const {
  MutexLock lock(mu_);
  return log_syncs_;
}
int64_t FaultyFiles::log_writes() const {
  MutexLock lock(mu_);
  return log_writes_;
}

uint64_t FaultyFiles::unsynced_log_bytes() const {
  MutexLock lock(mu_);
  uint64_t bytes = 0;
  for (const auto& [path, sizes] : sizes_) {
    if (IsLog(path)) bytes += sizes.written - sizes.synced;
  }
  return bytes;
}

void FaultyFiles::SlowDownSyncs(int64_t ms) {
  MutexLock lock(mu_);
  slow_ms_ = ms;
}
int64_t FaultyFiles::slow_ms() const {
  MutexLock lock(mu_);
  return slow_ms_;
}

void FaultyFiles::CutPower() {
  MutexLock lock(mu_);
  powerless_ = true;
}

void FaultyFiles::LoseUnsynced(uint32_t seed) {
  MutexLock lock(mu_);
  std::mt19937_64 random(seed);
  for (auto& [path, sizes] : sizes_) {
    std::error_code gone;  // with the folder, or by another name
    if (!std::filesystem::exists(path, gone)) continue;
    sizes.written =
        sizes.synced + random() % (sizes.written - sizes.synced + 1);
    std::filesystem::resize_file(path, sizes.written, gone);
  }
  powerless_ = false;
}

// ---- The file system --------------------------------------------------------

IOStatus FaultyFiles::NewWritableFile(
    const std::string& path, const rocksdb::FileOptions& options,
    std::unique_ptr<rocksdb::FSWritableFile>* result, IODebugContext* debug) {
  IOStatus status = Pass(Operation::kMake, path);
  if (!status.ok()) return status;
  std::unique_ptr<rocksdb::FSWritableFile> file;
  status = target()->NewWritableFile(path, options, &file, debug);
  if (!status.ok()) return status;
  {
    MutexLock lock(mu_);
    sizes_[path] = Sizes();
  }
  *result = std::make_unique<FaultyFile>(*this, path, std::move(file));
  return status;
}

IOStatus FaultyFiles::ReopenWritableFile(
    const std::string& path, const rocksdb::FileOptions& options,
    std::unique_ptr<rocksdb::FSWritableFile>* result, IODebugContext* debug) {
  IOStatus status = Pass(Operation::kMake, path);
  if (!status.ok()) return status;
  std::unique_ptr<rocksdb::FSWritableFile> file;
  status = target()->ReopenWritableFile(path, options, &file, debug);
  if (!status.ok()) return status;
  *result = std::make_unique<FaultyFile>(*this, path, std::move(file));
  return status;
}

IOStatus FaultyFiles::NewDirectory(
    const std::string& path, const IOOptions& options,
    std::unique_ptr<rocksdb::FSDirectory>* result, IODebugContext* debug) {
  std::unique_ptr<rocksdb::FSDirectory> directory;
  const IOStatus status =
      target()->NewDirectory(path, options, &directory, debug);
  if (!status.ok()) return status;
  *result =
      std::make_unique<FaultyDirectory>(*this, path, std::move(directory));
  return status;
}

IOStatus FaultyFiles::DeleteFile(const std::string& path,
                                 const IOOptions& options,
                                 IODebugContext* debug) {
  {
    MutexLock lock(mu_);
    if (powerless_) return Error(DiskFault::kIoError, path);
    sizes_.erase(path);
  }
  return target()->DeleteFile(path, options, debug);
}

IOStatus FaultyFiles::RenameFile(const std::string& from, const std::string& to,
                                 const IOOptions& options,
                                 IODebugContext* debug) {
  IOStatus status = Pass(Operation::kChangeFolder, to);
  if (status.ok()) status = target()->RenameFile(from, to, options, debug);
  if (!status.ok()) return status;
  MutexLock lock(mu_);
  const auto it = sizes_.find(from);
  if (it == sizes_.end()) return status;
  sizes_[to] = it->second;
  sizes_.erase(from);
  return status;
}

}  // namespace reprise
