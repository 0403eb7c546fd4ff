// Writes a file of packed weights (packed_table.h) while a model loads.
#ifndef ENGINE_MODEL_PACKED_FILE_WRITER_H_
#define ENGINE_MODEL_PACKED_FILE_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/file_access.h"
#include "engine/model/packed_table.h"

namespace reprise {

// Everything goes to a draft beside the file, PATH.new, which takes its place
// at the end; a reader finds the old file or the whole new one. One process at
// a time has the draft, under a lock that ends with it; a draft that a killed
// one left is written over. Used by one thread, whose team it uses.
class PackedFileWriter {
 public:
  // The file gets `mode`. Unavailable if another process is writing it;
  // ResourceExhausted if the file system has no room for about `bytes` and some
  // to spare; PermissionDenied, NotFound or Unavailable if the draft cannot be
  // made.
  static absl::StatusOr<std::unique_ptr<PackedFileWriter>> Create(
      const std::string& path, PackedIdentity identity, int64_t bytes,
      uint32_t mode);
  // Without Finish, removes the draft.
  ~PackedFileWriter();
  PackedFileWriter(const PackedFileWriter&) = delete;
  PackedFileWriter& operator=(const PackedFileWriter&) = delete;

  // Adds a block; a key already there is left as it is. After an error, which
  // Finish returns, it does nothing.
  void Add(std::string_view key, std::string_view layout,
           std::span<const std::byte> weights, std::string_view others);
  // Writes the table, waits until all is on disk, and puts the file in place.
  absl::Status Finish(Fingerprint::Digests digests);
  int64_t bytes() const { return static_cast<int64_t>(end_); }

 private:
  PackedFileWriter(std::string path, FileHandle draft, PackedIdentity identity);
  absl::Status WriteBlock(std::span<const std::byte> weights,
                          std::string_view others, PackedBlock& block);
  absl::Status WriteTable();

  const std::string path_;
  const std::string draft_path_;
  FileHandle draft_;
  PackedTable table_;
  uint64_t end_ = kPackedHeaderBytes;  // of what is written
  absl::Status status_;
  bool finished_ = false;
};

}  // namespace reprise

#endif  // ENGINE_MODEL_PACKED_FILE_WRITER_H_
