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
#include "engine/model/fingerprint.h"
#include "engine/model/safetensors.h"

namespace reprise {

// The rows of token ids. Kept in the type of the file: a step reads a handful
// of rows and converts them exactly, so f32 would double the memory and give
// the same numbers. Immutable after construction.
class EmbeddingTable {
 public:
  EmbeddingTable() = default;
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  // Writes row `row`, in [0, rows()), to the cols() elements at `out`.
  void Read(int64_t row, float* out) const;

 private:
  friend class Weights;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  DType dtype_ = DType::kF32;
  std::vector<float> floats_;     // [rows, cols] if kF32
  std::vector<uint16_t> halves_;  // [rows, cols] if kF16 or kBf16
};

// One of the matrices that a Linear stacks along its outputs.
struct LinearPart {
  const LinearRef& ref;
  int64_t out = 0;
};

// Used by one thread, while a model loads. All functions return
// InvalidArgument, naming the tensor, if it is missing, has another shape than
// the config says, a type that is no weight's, or a number that is not finite.
class Weights {
 public:
  // `checkpoint` and `scratch` must outlive the Weights; `type` is not kAuto.
  // Linears take up to `max_rows` rows and find all they need in `scratch`.
  Weights(const Checkpoint& checkpoint, WeightType type, int64_t max_rows,
          LinearScratch& scratch);

  // Weights that look like those of `checkpoint` and are none, for looking at
  // a model without loading it: names, shapes and types are checked, no byte of
  // a tensor is read. Vectors are zeros, Linears are Linear::OfShape, tables
  // must not be read; weight_bytes, exact and ModelFingerprint mean nothing.
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
  // Whether every Linear is exact.
  bool exact() const { return exact_; }
  // Changes with `config_text`, with every bit, shape, type and name of the
  // tensors handed out, and with the type they are packed in.
  uint64_t ModelFingerprint(std::string_view config_text) const;
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
  // Reads a tensor of the given shape to `out`.
  absl::Status ReadTo(const TensorRef& ref, const std::vector<int64_t>& shape,
                      std::span<float> out);
  absl::Status ReadMatrix(const LinearPart& part, int64_t in,
                          std::span<float> out);
  absl::StatusOr<Linear> Pack(std::span<const LinearPart> parts, int64_t in,
                              PackAs as);
  absl::StatusOr<Linear> PackMatrix(MatrixView<const float> weight,
                                    std::span<const float> bias, PackAs as);
  Linear ShapeOf(int64_t in, int64_t out, PackAs as);

  const Checkpoint& checkpoint_;
  const WeightType type_;
  const int64_t max_rows_;
  LinearScratch& scratch_;
  const bool shapes_only_ = false;
  int64_t num_parameters_ = 0;
  int64_t multiplications_ = 0;
  int64_t weight_bytes_ = 0;
  int64_t table_bytes_ = 0;
  bool exact_ = true;
  std::set<std::string, std::less<>> used_;
  Fingerprint fingerprint_;
};

}  // namespace reprise

#endif  // ENGINE_MODEL_WEIGHTS_H_
