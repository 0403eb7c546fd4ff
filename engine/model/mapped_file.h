// A file's bytes, read through the page cache.
#ifndef ENGINE_MODEL_MAPPED_FILE_H_
#define ENGINE_MODEL_MAPPED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace reprise {

// What changes when a file does: another file in its place has another inode,
// and the system sets `changed_ns` at every change, whatever sets
// `modified_ns`.
struct FileStamp {
  uint64_t inode = 0;
  int64_t bytes = 0;
  int64_t modified_ns = 0;  // since the Unix epoch
  int64_t changed_ns = 0;
  uint32_t owner = 0;  // a user's number
  uint32_t mode = 0;   // who may read and write it
  bool operator==(const FileStamp&) const = default;
};

// Follows symbolic links. NotFound if there is no such file, Unavailable if
// the system does not tell.
absl::StatusOr<FileStamp> StampOf(const std::string& path);

// Movable; unmaps when destroyed. Whoever shortens the file meanwhile ends this
// process with SIGBUS, so a mapping is held only while a model loads.
class MappedFile {
 public:
  // Follows symbolic links. NotFound if there is no such file, InvalidArgument
  // if it is not a regular one, Unavailable if the system refuses to map it.
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  // Stays where it is when the MappedFile moves.
  std::string_view bytes() const {
    return {static_cast<const char*>(data_), size_};
  }
  // Of the file when it was opened.
  const FileStamp& stamp() const { return stamp_; }

  // Takes the pages of `part`, which lies in bytes(), out of this process's
  // memory. Whoever reads them again gets them back, from the system's cache or
  // the disk.
  void DropPages(std::string_view part) const;

 private:
  MappedFile(void* data, size_t size, const FileStamp& stamp)
      : data_(data), size_(size), stamp_(stamp) {}

  void* data_ = nullptr;  // null when empty
  size_t size_ = 0;
  FileStamp stamp_;
};

}  // namespace reprise

#endif  // ENGINE_MODEL_MAPPED_FILE_H_
