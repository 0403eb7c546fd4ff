// The file that keeps a model's packed weights from one start to the next:
// where it is, whether it can be used, and what becomes of it if not.
//
//   Begin ──► file() to read from ──Refuse──► StartOver ──► writer() or nothing
//       └───► writer() to write to, or nothing
//
// A file is used only for the very files it was made of: same inodes, lengths,
// times of change, and headers. What a matrix in it was made of, and how, is
// its key; so a file serves any config that asks for the same matrices.
#ifndef ENGINE_MODEL_PACKED_CACHE_H_
#define ENGINE_MODEL_PACKED_CACHE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "engine/base/clock.h"
#include "engine/kernels/linear.h"
#include "engine/model/packed_cache_options.h"
#include "engine/model/packed_file.h"
#include "engine/model/packed_file_writer.h"
#include "engine/model/safetensors.h"

namespace reprise {

// Used by one thread, while a model loads. Never fails: what goes wrong is
// logged, and costs the packing.
class PackedCache {
 public:
  // `checkpoint` and `clock` must outlive the cache. `type` is that of the
  // weights, not kAuto.
  PackedCache(PackedCacheOptions options, const std::string& model_dir,
              const Checkpoint& checkpoint, WeightType type,
              const Clock& clock);

  // Opens the file, or else begins one. The model uses `model_bytes` of the
  // checkpoint, and takes about `packed_bytes` packed.
  void Begin(int64_t model_bytes, int64_t packed_bytes);
  // To take the weights from; null if there is none.
  const PackedFile* file() const { return file_ ? &*file_ : nullptr; }
  // To give the weights to; null if none is to be written.
  PackedFileWriter* writer() { return writer_.get(); }

  // Says why the file cannot be used after all, and returns the same: loading
  // ends with it, and begins again after StartOver.
  absl::Status Refuse(const absl::Status& reason);
  bool refused() const { return !reason_.ok(); }
  void StartOver();

  // Puts the written file in place, unless the checkpoint has changed
  // meanwhile. `digests` are those of its tensors.
  void Finish(const Fingerprint::Digests& digests);
  // After Finish.
  PackedCacheUse use() const { return use_; }

 private:
  void BeginWriting();
  bool CheckpointIsSettled() const;
  bool CheckpointIsUnchanged() const;
  void LogNotWritten(const absl::Status& reason) const;

  const PackedCacheOptions options_;
  const Checkpoint& checkpoint_;
  const Clock& clock_;
  const std::string path_;
  const PackedIdentity identity_;
  int64_t packed_bytes_ = 0;
  std::optional<PackedFile> file_;
  std::unique_ptr<PackedFileWriter> writer_;
  absl::Status reason_;  // of Refuse
  PackedCacheUse use_ = PackedCacheUse::kOff;
};

}  // namespace reprise

#endif  // ENGINE_MODEL_PACKED_CACHE_H_
