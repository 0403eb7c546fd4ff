// Names of a checkpoint's tensors, and the roles they have in every model.
// Plain data, the alphabet of the descriptions.
#ifndef ENGINE_MODEL_TENSOR_REF_H_
#define ENGINE_MODEL_TENSOR_REF_H_

#include <cstdint>
#include <string>
#include <vector>

namespace reprise {

// A tensor of the checkpoint. No name: the model has no such tensor.
struct TensorRef {
  std::string name;
  // The config fields that set its shape, for messages: "hidden_size".
  std::string fields;

  explicit operator bool() const { return !name.empty(); }
};

// Rows [first, first + count) of a matrix.
struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
};

// y = x W^T + b; W is [out, in], and the tensor is W unless it is told
// otherwise.
struct LinearRef {
  TensorRef weight;
  TensorRef bias;
  bool transposed = false;               // the tensor is W^T, [in, out]
  std::vector<int64_t> bias_shape = {};  // of that tensor, if not [out]
  // If W is a part of the tensor: the tensor's shape, whose last dimension is
  // `in`, and which of its rows are those of W, in order.
  std::vector<int64_t> stored_shape = {};
  std::vector<RowRange> rows = {};
};

enum class NormKind { kRms, kLayer };

struct NormDescription {
  NormKind kind = NormKind::kRms;
  float eps = 0;
  TensorRef weight;              // none: ones
  TensorRef bias;                // kLayer only; none: zeros
  bool weight_less_one = false;  // the tensor holds weight - 1
};

}  // namespace reprise

#endif  // ENGINE_MODEL_TENSOR_REF_H_
