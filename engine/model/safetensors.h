// Checkpoints in the safetensors format, memory-mapped: one file, or shards
// and the index that lists them.
#ifndef ENGINE_MODEL_SAFETENSORS_H_
#define ENGINE_MODEL_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/mapped_file.h"
#include "engine/model/safetensors_header.h"

namespace reprise {

struct TensorInfo {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t elements = 0;
  std::string_view bytes;  // as in the file; may lie at any address
  std::string file;        // name of the file, without its folder
};

// One of the files that tensors come from, as it was when it was opened.
struct CheckpointFile {
  std::string path;
  FileStamp stamp;
  uint32_t header_checksum = 0;  // CRC-32C
};

// The tensors of a checkpoint. Movable, immutable, thread-safe. Everything in
// the files' headers is checked when they are opened; numbers are checked when
// they are read. The files must not shrink while the checkpoint exists (see
// MappedFile).
class Checkpoint {
 public:
  // Opens model.safetensors in the folder `dir` or, without one, the shards
  // that model.safetensors.index.json lists; shards are plain names of files in
  // the same folder, which may be symbolic links. InvalidArgument, naming the
  // file and the tensor, for whatever the format forbids; NotFound if there is
  // no such file, saying so if there is only a pickle.
  static absl::StatusOr<Checkpoint> Open(const std::string& dir);
  // Opens one safetensors file.
  static absl::StatusOr<Checkpoint> OpenFile(const std::string& path);

  using Tensors = std::map<std::string, TensorInfo, std::less<>>;
  const Tensors& tensors() const { return tensors_; }
  // Null if there is no tensor of that name.
  const TensorInfo* Find(std::string_view name) const;

  // The numbers of a tensor of F32, F16 or BF16, converted exactly; `out` has
  // exactly as many elements as the tensor. NotFound if there is no such
  // tensor; InvalidArgument if it has another dtype or a number in it is NaN or
  // infinite. Uses the calling thread's team.
  absl::Status ReadF32(std::string_view name, std::span<float> out) const;
  // The same for the elements from `first` on, as many as `out` has; the caller
  // knows that the tensor has them.
  absl::Status ReadF32Range(std::string_view name, int64_t first,
                            std::span<float> out) const;
  // The numbers of a tensor of I32 or I64. InvalidArgument as above, or if a
  // number does not fit 32 bits.
  absl::StatusOr<std::vector<int32_t>> ReadI32(std::string_view name) const;

  // Takes the pages of `part`, bytes of a tensor, out of this process's memory:
  // for when they have been read. They may be read again.
  void DropPages(std::string_view part) const;
  // In the order of their names.
  const std::vector<CheckpointFile>& files() const { return sources_; }

 private:
  absl::Status AddFile(const std::string& path);
  static absl::StatusOr<Checkpoint> OpenShards(const std::string& dir);

  std::vector<MappedFile> files_;  // hold what the tensors' bytes point into
  std::vector<CheckpointFile> sources_;  // of files_
  Tensors tensors_;
};

}  // namespace reprise

#endif  // ENGINE_MODEL_SAFETENSORS_H_
