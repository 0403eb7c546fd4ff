#include "engine/model/packed_file_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/mutex.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

// What others may need of the file system, the store's sessions among them.
constexpr uint64_t kSpareBytes = uint64_t{1} << 30;

absl::Status CheckSpace(const std::string& path, int fd, uint64_t bytes) {
  struct statvfs info;
  if (fstatvfs(fd, &info) != 0) return absl::OkStatus();  // writing will tell
  const uint64_t free = uint64_t{info.f_bavail} * info.f_frsize;
  if (free >= bytes + kSpareBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(path, ": the file system has ", free, " bytes left, ", bytes,
                   " are needed, and ", kSpareBytes, " to spare"));
}

// Whether `path` is still what `fd` has open, and nothing else is: between the
// opening and the locking, another process may have finished the draft and put
// it in place.
bool IsStill(const std::string& path, int fd) {
  struct stat by_path, by_fd;
  return lstat(path.c_str(), &by_path) == 0 && fstat(fd, &by_fd) == 0 &&
         by_path.st_ino == by_fd.st_ino && by_path.st_dev == by_fd.st_dev &&
         S_ISREG(by_fd.st_mode) && by_fd.st_nlink == 1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PackedFileWriter>> PackedFileWriter::Create(
    const std::string& path, PackedIdentity identity, int64_t bytes,
    uint32_t mode) {
  const std::string draft_path = path + ".new";
  FileHandle draft(
      open(draft_path.c_str(),
           O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
           S_IRUSR | S_IWUSR));
  if (!draft) return FileError(draft_path, errno);
  const bool locked = flock(draft.fd(), LOCK_EX | LOCK_NB) == 0;
  if (!locked || !IsStill(draft_path, draft.fd())) {
    return absl::UnavailableError(
        absl::StrCat(draft_path, ": another process is writing it"));
  }
  // From here on the draft is this process's, to be removed.
  std::unique_ptr<PackedFileWriter> writer(
      new PackedFileWriter(path, std::move(draft), std::move(identity)));
  const int fd = writer->draft_.fd();
  RETURN_IF_ERROR(CheckSpace(path, fd, static_cast<uint64_t>(bytes)));
  if (ftruncate(fd, 0) != 0 || fchmod(fd, mode) != 0) {
    return FileError(draft_path, errno);
  }
  return writer;
}

PackedFileWriter::PackedFileWriter(std::string path, FileHandle draft,
                                   PackedIdentity identity)
    : path_(std::move(path)),
      draft_path_(path_ + ".new"),
      draft_(std::move(draft)) {
  table_.identity = std::move(identity);
}

PackedFileWriter::~PackedFileWriter() {
  if (!finished_) unlink(draft_path_.c_str());
}

void PackedFileWriter::Add(std::string_view key, std::string_view layout,
                           std::span<const std::byte> weights,
                           std::string_view others) {
  if (!status_.ok() || table_.blocks.contains(key)) return;
  PackedBlock block;
  block.layout = std::string(layout);
  status_ = WriteBlock(weights, others, block);
  if (status_.ok()) table_.blocks.emplace(key, std::move(block));
}

absl::Status PackedFileWriter::WriteBlock(std::span<const std::byte> weights,
                                          std::string_view others,
                                          PackedBlock& block) {
  block.offset =
      (end_ + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
  block.weight_bytes = weights.size();
  block.other_bytes = others.size();
  block.other_checksum = Crc32c(others);
  block.piece_checksums.resize((weights.size() + kPackedPieceBytes - 1) /
                               kPackedPieceBytes);
  Mutex mu;
  absl::Status status;
  ParallelFor(std::ssize(block.piece_checksums), [&](int64_t piece) {
    const uint64_t first = static_cast<uint64_t>(piece) * kPackedPieceBytes;
    const std::string_view bytes(
        reinterpret_cast<const char*>(weights.data()) + first,
        std::min<size_t>(kPackedPieceBytes, weights.size() - first));
    block.piece_checksums[static_cast<size_t>(piece)] = Crc32c(bytes);
    const absl::Status written = draft_.WriteAt(block.offset + first, bytes);
    if (written.ok()) return;
    MutexLock lock(mu);
    status.Update(written);
  });
  RETURN_IF_ERROR(status);
  const uint64_t rest = block.offset + block.weight_bytes;
  RETURN_IF_ERROR(draft_.WriteAt(rest, others));
  // Begins to write to the disk while the next matrix is packed, so that Finish
  // waits for little.
  sync_file_range(draft_.fd(), static_cast<off_t>(end_),
                  static_cast<off_t>(rest + others.size() - end_),
                  SYNC_FILE_RANGE_WRITE);
  end_ = rest + others.size();
  return absl::OkStatus();
}

absl::Status PackedFileWriter::WriteTable() {
  const std::string table = EncodePackedTable(table_);
  const PackedHeader header{.table_offset = end_,
                            .table_bytes = table.size(),
                            .table_checksum = Crc32c(table)};
  RETURN_IF_ERROR(draft_.WriteAt(end_, table));
  RETURN_IF_ERROR(draft_.WriteAt(0, EncodePackedHeader(header)));
  end_ += table.size();
  if (fsync(draft_.fd()) != 0) return FileError(draft_path_, errno);
  if (std::rename(draft_path_.c_str(), path_.c_str()) != 0) {
    return FileError(path_, errno);
  }
  return absl::OkStatus();
}

absl::Status PackedFileWriter::Finish(Fingerprint::Digests digests) {
  table_.digests = std::move(digests);
  if (status_.ok()) status_ = WriteTable();
  finished_ = status_.ok();
  return status_;
}

}  // namespace reprise
