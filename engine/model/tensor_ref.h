// Names of a checkpoint's tensors, and the roles they have in every model.
// Plain data, the alphabet of the descriptions.
#ifndef ENGINE_MODEL_TENSOR_REF_H_
#define ENGINE_MODEL_TENSOR_REF_H_

#include <string>

namespace reprise {

// A tensor of the checkpoint. No name: the model has no such tensor.
struct TensorRef {
  std::string name;
  // The config fields that set its shape, for messages: "hidden_size".
  std::string fields;

  explicit operator bool() const { return !name.empty(); }
};

// y = x W^T + b; W is stored as [out, in].
struct LinearRef {
  TensorRef weight;
  TensorRef bias;
};

enum class NormKind { kRms, kLayer };

struct NormDescription {
  NormKind kind = NormKind::kRms;
  float eps = 0;
  TensorRef weight;  // none: ones
  TensorRef bias;    // kLayer only; none: zeros
};

}  // namespace reprise

#endif  // ENGINE_MODEL_TENSOR_REF_H_
