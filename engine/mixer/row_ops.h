// Work on rows, shared by the mixers and the engine.
#ifndef ENGINE_MIXER_ROW_OPS_H_
#define ENGINE_MIXER_ROW_OPS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/activation.h"
#include "engine/model/block_description.h"
#include "engine/model/weights.h"

namespace reprise {

// What `activation` does to n numbers, in place.
using ActivationFunction = void (*)(float* x, int64_t n);
ActivationFunction FunctionOf(Activation activation);

// A normalisation over `size` numbers. Immutable after construction.
class Norm {
 public:
  // Takes the weight and the bias, each [size], that `description` names from
  // `weights`: InvalidArgument if one is missing or has another shape.
  static absl::StatusOr<Norm> Create(const NormDescription& description,
                                     int64_t size, Weights& weights);

  // `x` and `out` have size() elements; `out` may be `x`.
  void Apply(const float* x, float* out) const;
  int64_t size() const { return size_; }

 private:
  Norm() = default;

  NormKind kind_ = NormKind::kRms;
  int64_t size_ = 0;
  float eps_ = 0;
  std::vector<float> weight_;  // [size], or empty: ones
  std::vector<float> bias_;    // [size], or empty: zeros
};

}  // namespace reprise

#endif  // ENGINE_MIXER_ROW_OPS_H_
