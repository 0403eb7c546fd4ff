// A file's bytes, read through the page cache.
#ifndef ENGINE_MODEL_MAPPED_FILE_H_
#define ENGINE_MODEL_MAPPED_FILE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace reprise {

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

 private:
  MappedFile(void* data, size_t size) : data_(data), size_(size) {}

  void* data_ = nullptr;  // null when empty
  size_t size_ = 0;
};

}  // namespace reprise

#endif  // ENGINE_MODEL_MAPPED_FILE_H_
