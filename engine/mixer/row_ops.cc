#include "engine/mixer/row_ops.h"

#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/simd_ops.h"

namespace reprise {
namespace {

const float* DataOrNull(const std::vector<float>& values) {
  return values.empty() ? nullptr : values.data();
}

}  // namespace

ActivationFunction FunctionOf(Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return &Relu;
    case Activation::kGelu:
      return &GeluExact;
    case Activation::kSilu:
      return &Silu;
  }
  CHECK(!"an activation without a function");
}

absl::StatusOr<Norm> Norm::Create(const NormDescription& description,
                                  int64_t size, Weights& weights) {
  Norm norm;
  norm.kind_ = description.kind;
  norm.size_ = size;
  norm.eps_ = description.eps;
  ASSIGN_OR_RETURN(norm.weight_, weights.Vector(description.weight, size));
  if (description.weight_less_one) {
    for (float& weight : norm.weight_) weight += 1;
  }
  ASSIGN_OR_RETURN(norm.bias_, weights.Vector(description.bias, size));
  return norm;
}

void Norm::Apply(const float* x, float* out) const {
  switch (kind_) {
    case NormKind::kRms:
      RmsNorm(x, DataOrNull(weight_), size_, eps_, out);
      break;
    case NormKind::kLayer:
      LayerNorm(x, DataOrNull(weight_), DataOrNull(bias_), size_, eps_, out);
      break;
  }
}

}  // namespace reprise
