// The rows of token ids.
#ifndef ENGINE_MODEL_EMBEDDING_TABLE_H_
#define ENGINE_MODEL_EMBEDDING_TABLE_H_

#include <cstdint>

#include "engine/base/large_buffer.h"
#include "engine/model/safetensors_header.h"

namespace reprise {

// Kept in the type of the file: a step reads a handful of rows and converts
// them exactly, so f32 would double the memory and give the same numbers.
// Immutable after construction.
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
  LargeBuffer numbers_;  // [rows, cols] of f32, f16 or bf16
};

}  // namespace reprise

#endif  // ENGINE_MODEL_EMBEDDING_TABLE_H_
