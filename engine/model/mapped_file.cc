#include "engine/model/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/model/file_access.h"

namespace reprise {
namespace {

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

FileStamp MakeStamp(const struct stat& info) {
  return {.inode = info.st_ino,
          .bytes = info.st_size,
          .modified_ns = Nanoseconds(info.st_mtim),
          .changed_ns = Nanoseconds(info.st_ctim),
          .owner = info.st_uid,
          .mode = info.st_mode & 0777};
}

}  // namespace

absl::StatusOr<FileStamp> StampOf(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return FileError(path, errno);
  return MakeStamp(info);
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  // Non-blocking: opening a pipe would wait for its writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return FileError(path, errno);
  struct stat info;
  if (fstat(fd, &info) != 0) {
    const int error = errno;
    close(fd);
    return FileError(path, error);
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a file"));
  }
  if (info.st_size == 0) {
    close(fd);
    return MappedFile(nullptr, 0, MakeStamp(info));
  }
  const size_t size = static_cast<size_t>(info.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, /*offset=*/0);
  const int error = errno;
  close(fd);
  if (data == MAP_FAILED) return FileError(path, error);
  return MappedFile(data, size, MakeStamp(info));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      stamp_(other.stamp_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(stamp_, other.stamp_);
  return *this;
}

void MappedFile::DropPages(std::string_view part) const {
  // A read of one page brings in the others of its 64 KiB.
  constexpr uintptr_t kAround = 64 << 10;
  const auto file = reinterpret_cast<uintptr_t>(data_);
  const auto first = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t begin = std::max(file, first / kAround * kAround);
  const uintptr_t end = std::min(
      file + size_, (first + part.size() + kAround - 1) / kAround * kAround);
  if (begin >= end) return;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace reprise
