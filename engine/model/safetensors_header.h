// The header of a safetensors file: which tensors its data holds, and where.
//
//   u64 n | n bytes of JSON | data
//
// The JSON maps each name to {"dtype", "shape", "data_offsets": [begin, end)},
// offsets counted from the start of the data; "__metadata__" maps strings to
// strings. The tensors cover the data without gap or overlap.
#ifndef ENGINE_MODEL_SAFETENSORS_HEADER_H_
#define ENGINE_MODEL_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace reprise {

enum class DType {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64,
};

// As files spell it: "BF16".
std::string_view DTypeName(DType dtype);
int64_t DTypeBytes(DType dtype);

struct TensorEntry {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t elements = 0;
  uint64_t begin = 0;  // bytes from the start of the data
  uint64_t end = 0;
};

using TensorEntries = std::map<std::string, TensorEntry, std::less<>>;

// A larger header is refused, as in the format's own reader.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr int64_t kMaxTensorRank = 8;

// `json` describes `data_bytes` bytes of data. InvalidArgument, naming the
// tensor, for everything the format forbids, for types this project does not
// know, and for more than kMaxTensorRank dimensions. Memory is bounded by a
// small multiple of the size of `json`.
absl::StatusOr<TensorEntries> ParseSafetensorsHeader(std::string_view json,
                                                     uint64_t data_bytes);

// "[2, 64]", for messages.
std::string ShapeText(const std::vector<int64_t>& shape);

}  // namespace reprise

#endif  // ENGINE_MODEL_SAFETENSORS_HEADER_H_
