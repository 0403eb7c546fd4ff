#include "client/state_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "client/input.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

absl::Status Failed(const char* what, const std::string& path) {
  return absl::UnknownError(std::string("cannot ") + what + " " + path + ": " +
                            std::strerror(errno));
}

bool WriteWhole(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// A new file for its owner only, beside `path`, so that a rename stays in one
// file system. Returns -1 if it cannot be made.
int MakeDraft(const std::string& path, std::string& draft) {
  draft = path + ".XXXXXX";
  return mkostemp(draft.data(), O_CLOEXEC);
}

// Whole or not at all: a draft that takes the place of `path` in the end.
absl::Status WriteInPlace(const std::string& path, std::string_view bytes) {
  std::string draft;
  const int fd = MakeDraft(path, draft);
  if (fd < 0) return Failed("write", path);
  absl::Status status;
  if (!WriteWhole(fd, bytes) || fsync(fd) != 0) status = Failed("write", path);
  if (close(fd) != 0 && status.ok()) status = Failed("write", path);
  if (status.ok() && std::rename(draft.c_str(), path.c_str()) != 0) {
    status = Failed("write", path);
  }
  if (!status.ok()) unlink(draft.c_str());
  return status;
}

// Into what is there: a device, a pipe.
absl::Status WriteInto(const std::string& path, std::string_view bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return Failed("write", path);
  absl::Status status;
  if (!WriteWhole(fd, bytes)) status = Failed("write", path);
  if (close(fd) != 0 && status.ok()) status = Failed("write", path);
  return status;
}

}  // namespace

absl::Status WriteStateFile(const std::string& path, std::string_view bytes) {
  struct stat there {};
  if (stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
    return WriteInto(path, bytes);
  }
  return WriteInPlace(path, bytes);
}

absl::Status CheckStateFile(const std::string& path) {
  struct stat there {};
  if (stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
    errno = EISDIR;
    if (S_ISDIR(there.st_mode)) return Failed("write", path);
    // Not opened: that would wait for the reader of a pipe.
    if (access(path.c_str(), W_OK) != 0) return Failed("write", path);
    return absl::OkStatus();
  }
  std::string draft;
  const int fd = MakeDraft(path, draft);
  if (fd < 0) return Failed("write", path);
  close(fd);
  unlink(draft.c_str());
  return absl::OkStatus();
}

// The header of a seal, version 1 (docs/export.md): magic, version, lengths,
// label and nonce, then the size of the key's id and the id.
bool OpensInOneProcess(std::string_view sealed) {
  constexpr std::string_view kBegin("RPSE\1\0\0\0", 8);
  constexpr size_t kKeyIdAt = 68;
  constexpr std::string_view kDrawn = ".until-exit-";
  return sealed.starts_with(kBegin) &&
         sealed.size() > kKeyIdAt + sizeof(uint32_t) &&
         sealed.substr(kKeyIdAt + sizeof(uint32_t)).starts_with(kDrawn);
}

std::string OpensInOneProcessNotice(const std::string& where) {
  return where +
         " opens until this server ends, and on no other: it was started "
         "without --seal-keys";
}

absl::StatusOr<std::string> ReadStateFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Failed("open", path);
  struct stat file {};
  if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode) &&
      file.st_size > static_cast<off_t>(kMaxStateBytes)) {
    close(fd);
    return absl::ResourceExhaustedError(
        path + " has " + std::to_string(file.st_size) +
        " bytes, a state at most " + std::to_string(kMaxStateBytes));
  }
  absl::StatusOr<std::string> bytes = ReadAll(fd, kMaxStateBytes);
  close(fd);
  if (bytes.ok()) return bytes;
  return absl::Status(bytes.status().code(),
                      path + ": " + std::string(bytes.status().message()));
}

}  // namespace reprise
