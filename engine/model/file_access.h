// A file descriptor that is closed when its owner is gone, and reads and writes
// of whole pieces.
#ifndef ENGINE_MODEL_FILE_ACCESS_H_
#define ENGINE_MODEL_FILE_ACCESS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace reprise {

// Movable. ReadAt and WriteAt may run on several threads at once.
class FileHandle {
 public:
  // Owns `fd`, or nothing if it is negative.
  explicit FileHandle(int fd = -1) : fd_(fd) {}
  ~FileHandle();
  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&& other) noexcept;

  explicit operator bool() const { return fd_ >= 0; }
  int fd() const { return fd_; }

  // Fills `bytes` from `offset` on. DataLoss if the file ends before,
  // Unavailable if the system cannot read it.
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> bytes) const;
  // Unavailable if the system cannot write all, ResourceExhausted if there is
  // no space.
  absl::Status WriteAt(uint64_t offset, std::string_view bytes) const;

 private:
  int fd_ = -1;
};

// "PATH: what `error`, an errno, means", as the status that fits: NotFound,
// PermissionDenied, ResourceExhausted or Unavailable.
absl::Status FileError(const std::string& path, int error);

}  // namespace reprise

#endif  // ENGINE_MODEL_FILE_ACCESS_H_
