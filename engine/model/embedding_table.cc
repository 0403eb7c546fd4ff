#include "engine/model/embedding_table.h"

#include <cstring>

#include "engine/kernels/simd_ops.h"

namespace reprise {

void EmbeddingTable::Read(int64_t row, float* out) const {
  const std::byte* const from =
      numbers_.data() + row * cols_ * DTypeBytes(dtype_);
  switch (dtype_) {
    case DType::kF16:
      F16ToF32(reinterpret_cast<const uint16_t*>(from), cols_, out);
      break;
    case DType::kBf16:
      Bf16ToF32(reinterpret_cast<const uint16_t*>(from), cols_, out);
      break;
    default:
      std::memcpy(out, from, static_cast<size_t>(cols_) * sizeof(float));
  }
}

}  // namespace reprise
