#include "engine/mixer/row_ops.h"

#include "engine/base/log.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/simd_ops.h"

namespace reprise {
namespace {

// Below this the team costs more than it brings: waking it takes about a
// microsecond, in which one core passes over some ten thousand floats in its
// cache.
constexpr int64_t kFloatsWorthATeam = 16384;

const float* DataOrNull(const std::vector<float>& values) {
  return values.empty() ? nullptr : values.data();
}

}  // namespace

void ForEach(int64_t n, int64_t floats_each,
             absl::FunctionRef<void(int64_t)> body) {
  if (n * floats_each >= kFloatsWorthATeam) {
    ParallelFor(n, body);
    return;
  }
  for (int64_t i = 0; i < n; ++i) body(i);
}

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
