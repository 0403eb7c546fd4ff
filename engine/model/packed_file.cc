#include "engine/model/packed_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/base/mutex.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/model/json_text.h"

namespace reprise {
namespace {

// Keys, layouts and checksums of a file: a few thousandths of it.
constexpr uint64_t kMaxTableBytes = uint64_t{1} << 30;

absl::Status CheckOwner(const struct stat& info,
                        std::span<const uint32_t> owners) {
  if (!S_ISREG(info.st_mode)) {
    return absl::PermissionDeniedError("it is not a regular file");
  }
  if (std::find(owners.begin(), owners.end(), info.st_uid) == owners.end()) {
    return absl::PermissionDeniedError(
        absl::StrCat("it belongs to user ", info.st_uid,
                     ", neither this process's nor the model's"));
  }
  if ((info.st_mode & S_IWOTH) != 0) {
    return absl::PermissionDeniedError("everybody may write it");
  }
  return absl::OkStatus();
}

// The same names in the same order are what the same program writes.
absl::Status CompareIdentities(const PackedIdentity& made,
                               const PackedIdentity& wanted) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto& [name, value] = wanted[i];
    if (i >= made.size() || made[i].first != name) {
      return absl::FailedPreconditionError(
          absl::StrCat("it says nothing of ", Quoted(name)));
    }
    if (made[i].second != value) {
      return absl::FailedPreconditionError(
          absl::StrCat(name, " was ", Quoted(made[i].second), " and is now ",
                       Quoted(value)));
    }
  }
  if (made.size() == wanted.size()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("it was also made of ", Quoted(made[wanted.size()].first)));
}

absl::StatusOr<std::string> ReadString(const FileHandle& file, uint64_t offset,
                                       uint64_t size) {
  std::string result(size, '\0');
  RETURN_IF_ERROR(file.ReadAt(
      offset, {reinterpret_cast<std::byte*>(result.data()), result.size()}));
  return result;
}

}  // namespace

absl::StatusOr<PackedFile> PackedFile::Open(const std::string& path,
                                            const PackedIdentity& identity,
                                            std::span<const uint32_t> owners) {
  // Non-blocking: opening a pipe would wait for its writer.
  FileHandle file(
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) return FileError("opening", errno);
  struct stat info;
  if (fstat(file.fd(), &info) != 0) return FileError("opening", errno);
  RETURN_IF_ERROR(CheckOwner(info, owners));
  const auto size = static_cast<uint64_t>(info.st_size);
  ASSIGN_OR_RETURN(const std::string start,
                   ReadString(file, 0, std::min(size, kPackedHeaderBytes)));
  ASSIGN_OR_RETURN(const PackedHeader header, DecodePackedHeader(start, size));
  if (header.table_bytes > kMaxTableBytes) {
    return absl::DataLossError(
        absl::StrCat("the table claims ", header.table_bytes,
                     " bytes, the limit is ", kMaxTableBytes));
  }
  ASSIGN_OR_RETURN(const std::string bytes,
                   ReadString(file, header.table_offset, header.table_bytes));
  ASSIGN_OR_RETURN(PackedTable table, DecodePackedTable(bytes, header));
  RETURN_IF_ERROR(CompareIdentities(table.identity, identity));
  return PackedFile(std::move(file), std::move(table));
}

const PackedBlock* PackedFile::Find(std::string_view key) const {
  const auto found = table_.blocks.find(key);
  return found == table_.blocks.end() ? nullptr : &found->second;
}

const Fingerprint::Digest* PackedFile::FindDigest(
    std::string_view tensor) const {
  const auto found = table_.digests.find(tensor);
  return found == table_.digests.end() ? nullptr : &found->second;
}

absl::Status PackedFile::ReadWeights(const PackedBlock& block,
                                     std::span<std::byte> weights) const {
  CHECK(weights.size() == block.weight_bytes);
  Mutex mu;
  absl::Status status;  // of the first piece that failed
  ParallelFor(std::ssize(block.piece_checksums), [&](int64_t piece) {
    const uint64_t first = static_cast<uint64_t>(piece) * kPackedPieceBytes;
    const std::span<std::byte> bytes = weights.subspan(
        first, std::min<size_t>(kPackedPieceBytes, weights.size() - first));
    absl::Status read = file_.ReadAt(block.offset + first, bytes);
    // Of the bytes that were read, and not of those that a second look at the
    // file would find.
    if (read.ok() &&
        Crc32c({reinterpret_cast<const char*>(bytes.data()), bytes.size()}) !=
            block.piece_checksums[static_cast<size_t>(piece)]) {
      read = absl::DataLossError(
          absl::StrCat("the checksum of the weights at byte ",
                       block.offset + first, " is wrong"));
    }
    if (read.ok()) return;
    MutexLock lock(mu);
    status.Update(read);
  });
  return status;
}

absl::StatusOr<std::string> PackedFile::ReadOthers(
    const PackedBlock& block) const {
  const uint64_t offset = block.offset + block.weight_bytes;
  ASSIGN_OR_RETURN(std::string others,
                   ReadString(file_, offset, block.other_bytes));
  if (Crc32c(others) != block.other_checksum) {
    return absl::DataLossError(absl::StrCat(
        "the checksum of bias and scales at byte ", offset, " is wrong"));
  }
  return others;
}

}  // namespace reprise
