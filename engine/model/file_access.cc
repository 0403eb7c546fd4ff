#include "engine/model/file_access.h"

#include <errno.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace reprise {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::StatusCode::kResourceExhausted;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

}  // namespace

absl::Status FileError(const std::string& path, int error) {
  return absl::Status(CodeOf(error),
                      absl::StrCat(path, ": ", std::strerror(error)));
}

FileHandle::~FileHandle() {
  if (fd_ >= 0) close(fd_);
}

FileHandle::FileHandle(FileHandle&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

absl::Status FileHandle::ReadAt(uint64_t offset,
                                std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got =
        pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError("reading", errno);
    if (got == 0) {
      return absl::DataLossError(absl::StrCat("truncated: it ends at byte ",
                                              offset, ", ", bytes.size(),
                                              " bytes too early"));
    }
    bytes = bytes.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

absl::Status FileHandle::WriteAt(uint64_t offset,
                                 std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t put =
        pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return FileError("writing", errno);
    bytes.remove_prefix(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
  return absl::OkStatus();
}

}  // namespace reprise
