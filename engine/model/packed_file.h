// A file of packed weights (packed_table.h), for reading: never trusted, and
// never mapped, so that whoever writes to it, or shortens it, changes nothing
// that was checked.
#ifndef ENGINE_MODEL_PACKED_FILE_H_
#define ENGINE_MODEL_PACKED_FILE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/file_access.h"
#include "engine/model/packed_table.h"

namespace reprise {

// Movable. Used by one thread at a time, whose team it uses.
class PackedFile {
 public:
  // Opens the file and checks all but the blocks. `owners` are the users, by
  // number, that it may belong to. NotFound if there is none;
  // FailedPrecondition, naming what differs, if it is not what `identity` says;
  // DataLoss if it is damaged; PermissionDenied if it belongs to somebody else,
  // or everybody may write it; Unavailable if it cannot be read.
  static absl::StatusOr<PackedFile> Open(const std::string& path,
                                         const PackedIdentity& identity,
                                         std::span<const uint32_t> owners);

  // Null if there is no such block.
  const PackedBlock* Find(std::string_view key) const;
  // Null if no block was made of that tensor.
  const Fingerprint::Digest* FindDigest(std::string_view tensor) const;

  // Reads the weights of a block, block.weight_bytes of them, and checks what
  // was read. DataLoss if it is not what was written; Unavailable if it cannot
  // be read.
  absl::Status ReadWeights(const PackedBlock& block,
                           std::span<std::byte> weights) const;
  absl::StatusOr<std::string> ReadOthers(const PackedBlock& block) const;

 private:
  PackedFile(FileHandle file, PackedTable table)
      : file_(std::move(file)), table_(std::move(table)) {}

  FileHandle file_;
  PackedTable table_;
};

}  // namespace reprise

#endif  // ENGINE_MODEL_PACKED_FILE_H_
