// Bytes as one zstd frame (RFC 8878). The only file that knows the library.
#ifndef ENGINE_STATE_ZSTD_FRAME_H_
#define ENGINE_STATE_ZSTD_FRAME_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace reprise {

// Equal bytes give equal frames as long as the library is the same version.
std::string ZstdCompress(std::string_view bytes);

// Reads a frame bit by bit into memory of the caller's, so that no more is ever
// taken than was asked for, whatever the frame claims. Used by one thread.
class ZstdReader {
 public:
  // `frame` must outlive the reader.
  explicit ZstdReader(std::string_view frame);
  ~ZstdReader();

  // The next `size` bytes. DataLoss if there are fewer, if the frame is
  // damaged, or needs a larger window than ZstdCompress ever makes.
  absl::Status Read(char* out, size_t size);
  // DataLoss unless everything was read: of the frame, and of `frame`.
  absl::Status End();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise

#endif  // ENGINE_STATE_ZSTD_FRAME_H_
