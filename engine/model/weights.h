// Hands a checkpoint's tensors to the parts of a model by role: checked
// against the config, converted, packed, counted and fingerprinted.
#ifndef ENGINE_MODEL_WEIGHTS_H_
#define ENGINE_MODEL_WEIGHTS_H_

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/kernels/linear.h"
#include "engine/model/block_description.h"
#include "engine/model/embedding_table.h"
#include "engine/model/fingerprint.h"
#include "engine/model/load_progress.h"
#include "engine/model/safetensors.h"

namespace reprise {

// One of the matrices that a Linear stacks along its outputs.
struct LinearPart {
  const LinearRef& ref;
  int64_t out = 0;
};

// Used by one thread, while a model loads. All functions return
// InvalidArgument, naming the tensor, if it is missing, empty, of another shape
// than the config says, of a type that is no weight's, or not finite somewhere;
// and any status, then also told to the cache, if its file is of no use.
//
// Memory: besides what is handed out, the largest matrix in the type that it is
// packed in, and a few megabytes. Of the checkpoint's files no more pages stay
// in memory than that.
class Weights {
 public:
  // All that is passed must outlive the Weights; `type` is not kAuto. Linears
  // take up to `max_rows` rows and find all they need in `scratch`.
  Weights(const Checkpoint& checkpoint, WeightType type, int64_t max_rows,
          LinearScratch& scratch, LoadAids aids = {});

  // Weights that look like those of `checkpoint` and are none, for looking at
  // a model without loading it: names, shapes and types are checked, no byte of
  // a tensor is read. Vectors are zeros, Linears are Linear::OfShape, tables
  // must not be read; weight_bytes and ModelFingerprint mean nothing.
  static Weights ShapesOnly(const Checkpoint& checkpoint,
                            LinearScratch& scratch);

  int64_t max_rows() const { return max_rows_; }

  // y = [x W1^T + b1 | x W2^T + b2 | ...], one matmul. Parts without a bias get
  // zeros where another one has it. In `type`, but int8 takes no more than
  // kMaxInt8Inputs inputs; beyond, f32.
  absl::StatusOr<Linear> MakeLinear(std::span<const LinearPart> parts,
                                    int64_t in);
  // The same, always in f32 and for up to `rows_per_row` * max_rows() rows: for
  // small maps that every head applies on its own, and for those of low rank,
  // routers, and whatever else is cheap and sets decays or chooses: rounding
  // would save nothing there, and cost most.
  absl::StatusOr<Linear> MakeHeadLinear(std::span<const LinearPart> parts,
                                        int64_t in, int64_t rows_per_row);
  // Likewise of numbers that were read before: W, [out, in], and its bias or
  // none.
  absl::StatusOr<Linear> PackHeadLinear(MatrixView<const float> weight,
                                        std::span<const float> bias);
  // `size` numbers; empty if `ref` names no tensor.
  absl::StatusOr<std::vector<float>> Vector(const TensorRef& ref, int64_t size);
  // The same for a tensor of any shape, row-major.
  absl::StatusOr<std::vector<float>> Tensor(const TensorRef& ref,
                                            const std::vector<int64_t>& shape);
  absl::StatusOr<EmbeddingTable> Embedding(const TensorRef& ref, int64_t rows,
                                           int64_t cols);

  // Of the tensors handed out so far, each counted once.
  int64_t num_parameters() const { return num_parameters_; }
  // ShapesOnly: how many numbers a row of x is multiplied with in all Linears.
  int64_t multiplications() const { return multiplications_; }
  // Memory of everything handed out, as packed.
  int64_t weight_bytes() const { return weight_bytes_; }
  // Of those, what every step reads: all but the embedding tables.
  int64_t step_weight_bytes() const { return weight_bytes_ - table_bytes_; }
  // Changes with `config_text`, with every bit, shape, type and name of the
  // tensors handed out, and with the type they are packed in.
  uint64_t ModelFingerprint(std::string_view config_text) const;
  // Of the tensors handed out.
  const Fingerprint::Digests& digests() const { return fingerprint_.digests(); }
  // Of what was handed out: as in the files, and of Linears, by number.
  int64_t source_bytes() const { return source_bytes_; }
  int64_t linear_numbers() const { return linear_numbers_; }
  // The checkpoint's tensors that nobody asked for, by name.
  std::vector<std::string> UnusedTensors() const;

 private:
  struct PackAs {
    WeightType type;
    int64_t max_rows;
  };

  Weights(const Checkpoint& checkpoint, LinearScratch& scratch);

  // Checks and records a tensor of the given shape.
  absl::StatusOr<const TensorInfo*> Use(const TensorRef& ref,
                                        const std::vector<int64_t>& shape);
  absl::Status Hash(std::string_view name, const TensorInfo& tensor);
  void CountSource(int64_t bytes);
  absl::Status ReadTo(const TensorRef& ref, const std::vector<int64_t>& shape,
                      std::span<float> out);
  absl::Status ReadPartRows(const LinearPart& part, int64_t in, int64_t first,
                            int64_t count, float* out);
  absl::Status ReadRowsOf(std::span<const LinearPart> parts, int64_t in,
                          int64_t first, int64_t count, float* out);
  absl::StatusOr<Linear> Pack(std::span<const LinearPart> parts, int64_t in,
                              PackAs as);
  absl::StatusOr<Linear> PackSource(std::span<const LinearPart> parts,
                                    const LinearShape& shape, bool biased,
                                    PackAs as);
  absl::StatusOr<Linear> TakePacked(std::span<const LinearPart> parts,
                                    const LinearShape& shape, bool biased,
                                    PackAs as);
  absl::Status TakeDigest(std::string_view name);
  Linear Count(Linear linear);
  Linear ShapeOf(int64_t in, int64_t out, PackAs as);

  const Checkpoint& checkpoint_;
  const WeightType type_;
  const int64_t max_rows_;
  LinearScratch& scratch_;
  const LoadAids aids_;
  const bool shapes_only_ = false;
  PackBuffer buffer_;
  int64_t num_parameters_ = 0;
  int64_t multiplications_ = 0;
  int64_t weight_bytes_ = 0;
  int64_t table_bytes_ = 0;
  int64_t source_bytes_ = 0;
  int64_t linear_numbers_ = 0;
  std::set<std::string, std::less<>> used_;
  std::set<std::string, std::less<>> hashed_;
  Fingerprint fingerprint_;
};

}  // namespace reprise

#endif  // ENGINE_MODEL_WEIGHTS_H_
