#include "engine/model/weights.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/simd_ops.h"
#include "engine/model/json_text.h"

namespace reprise {
namespace {

// What the tensor that holds W, or W among others, must look like.
std::vector<int64_t> StoredShape(const LinearPart& part, int64_t in) {
  if (part.ref.transposed) return {in, part.out};
  if (!part.ref.rows.empty()) return part.ref.stored_shape;
  return {part.out, in};
}

std::vector<int64_t> BiasShape(const LinearPart& part) {
  if (!part.ref.bias_shape.empty()) return part.ref.bias_shape;
  return {part.out};
}

}  // namespace

void EmbeddingTable::Read(int64_t row, float* out) const {
  const int64_t first = row * cols_;
  switch (dtype_) {
    case DType::kF16:
      F16ToF32(&halves_[static_cast<size_t>(first)], cols_, out);
      break;
    case DType::kBf16:
      Bf16ToF32(&halves_[static_cast<size_t>(first)], cols_, out);
      break;
    default:
      std::memcpy(out, &floats_[static_cast<size_t>(first)],
                  static_cast<size_t>(cols_) * sizeof(float));
  }
}

Weights::Weights(const Checkpoint& checkpoint, WeightType type,
                 int64_t max_rows, LinearScratch& scratch)
    : checkpoint_(checkpoint),
      type_(type),
      max_rows_(max_rows),
      scratch_(scratch) {
  CHECK(type != WeightType::kAuto);
}

Weights::Weights(const Checkpoint& checkpoint, LinearScratch& scratch)
    : checkpoint_(checkpoint),
      type_(WeightType::kF32),
      max_rows_(1),
      scratch_(scratch),
      shapes_only_(true) {}

Weights Weights::ShapesOnly(const Checkpoint& checkpoint,
                            LinearScratch& scratch) {
  return Weights(checkpoint, scratch);
}

absl::StatusOr<const TensorInfo*> Weights::Use(
    const TensorRef& ref, const std::vector<int64_t>& shape) {
  const TensorInfo* tensor = checkpoint_.Find(ref.name);
  if (tensor == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", Quoted(ref.name), " is missing; config.json (",
                     ref.fields, ") needs it with shape ", ShapeText(shape)));
  }
  if (tensor->shape != shape) {
    const bool one = ref.fields.find(' ') == std::string::npos;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", Quoted(ref.name), " has shape ",
                     ShapeText(tensor->shape), ", config.json's ", ref.fields,
                     one ? " needs " : " need ", ShapeText(shape)));
  }
  // Nothing is read, but the type is checked.
  if (shapes_only_) RETURN_IF_ERROR(checkpoint_.ReadF32Range(ref.name, 0, {}));
  if (used_.insert(ref.name).second) {
    num_parameters_ += tensor->elements;
    if (shapes_only_) return tensor;
    fingerprint_.Add(ref.name,
                     absl::StrCat(ToAbsl(DTypeName(tensor->dtype)),
                                  ShapeText(tensor->shape)),
                     tensor->bytes);
  }
  return tensor;
}

absl::Status Weights::ReadTo(const TensorRef& ref,
                             const std::vector<int64_t>& shape,
                             std::span<float> out) {
  ASSIGN_OR_RETURN([[maybe_unused]] const TensorInfo* tensor, Use(ref, shape));
  return checkpoint_.ReadF32(ref.name, out);
}

// W of `part`, [out, in], to `out`.
absl::Status Weights::ReadMatrix(const LinearPart& part, int64_t in,
                                 std::span<float> out) {
  const LinearRef& ref = part.ref;
  if (ref.transposed) {
    std::vector<float> stored(out.size());
    RETURN_IF_ERROR(ReadTo(ref.weight, StoredShape(part, in), stored));
    for (int64_t i = 0; i < in; ++i) {
      for (int64_t o = 0; o < part.out; ++o) {
        out[static_cast<size_t>(o * in + i)] =
            stored[static_cast<size_t>(i * part.out + o)];
      }
    }
    return absl::OkStatus();
  }
  if (ref.rows.empty()) {
    return ReadTo(ref.weight, StoredShape(part, in), out);
  }
  for (const RowRange& range : ref.rows) {
    const auto elements = static_cast<size_t>(range.count * in);
    RETURN_IF_ERROR(checkpoint_.ReadF32Range(ref.weight.name, range.first * in,
                                             out.first(elements)));
    out = out.subspan(elements);
  }
  CHECK(out.empty());
  return absl::OkStatus();
}

absl::StatusOr<Linear> Weights::Pack(std::span<const LinearPart> parts,
                                     int64_t in, PackAs as) {
  int64_t out = 0;
  bool biased = false;
  for (const LinearPart& part : parts) {
    // Before any memory: a config can claim any size, a file has its own.
    RETURN_IF_ERROR(Use(part.ref.weight, StoredShape(part, in)).status());
    out += part.out;
    biased |= static_cast<bool>(part.ref.bias);
  }
  if (shapes_only_) {
    for (const LinearPart& part : parts) {
      if (!part.ref.bias) continue;
      RETURN_IF_ERROR(Use(part.ref.bias, BiasShape(part)).status());
    }
    return ShapeOf(in, out, as);
  }
  std::vector<float> weight(static_cast<size_t>(out * in));
  std::vector<float> bias(static_cast<size_t>(biased ? out : 0));
  std::span<float> weight_rest(weight);
  std::span<float> bias_rest(bias);
  for (const LinearPart& part : parts) {
    const auto elements = static_cast<size_t>(part.out * in);
    RETURN_IF_ERROR(ReadMatrix(part, in, weight_rest.first(elements)));
    weight_rest = weight_rest.subspan(elements);
    const size_t rows = biased ? static_cast<size_t>(part.out) : 0;
    if (part.ref.bias) {
      RETURN_IF_ERROR(
          ReadTo(part.ref.bias, BiasShape(part), bias_rest.first(rows)));
    }
    bias_rest = bias_rest.subspan(rows);
  }
  return PackMatrix({weight.data(), out, in}, bias, as);
}

absl::StatusOr<Linear> Weights::PackMatrix(MatrixView<const float> weight,
                                           std::span<const float> bias,
                                           PackAs as) {
  if (shapes_only_) return ShapeOf(weight.cols, weight.rows, as);
  ASSIGN_OR_RETURN(
      Linear linear,
      Linear::Create(weight, bias, {.type = as.type, .max_rows = as.max_rows}));
  linear.Reserve(scratch_);
  weight_bytes_ += linear.packed_bytes();
  exact_ = exact_ && linear.exact();
  return linear;
}

Linear Weights::ShapeOf(int64_t in, int64_t out, PackAs as) {
  // With max_rows() of 1, as.max_rows is how often a row of x passes.
  multiplications_ += in * out * as.max_rows;
  return Linear::OfShape(in, out);
}

absl::StatusOr<Linear> Weights::PackHeadLinear(MatrixView<const float> weight,
                                               std::span<const float> bias) {
  return PackMatrix(weight, bias,
                    {.type = WeightType::kF32, .max_rows = max_rows_});
}

absl::StatusOr<Linear> Weights::MakeLinear(std::span<const LinearPart> parts,
                                           int64_t in) {
  const bool too_wide = type_ == WeightType::kInt8 && in > kMaxInt8Inputs;
  return Pack(
      parts, in,
      {.type = too_wide ? WeightType::kF32 : type_, .max_rows = max_rows_});
}

absl::StatusOr<Linear> Weights::MakeHeadLinear(
    std::span<const LinearPart> parts, int64_t in, int64_t rows_per_row) {
  return Pack(parts, in,
              {.type = WeightType::kF32, .max_rows = max_rows_ * rows_per_row});
}

absl::StatusOr<std::vector<float>> Weights::Vector(const TensorRef& ref,
                                                   int64_t size) {
  return Tensor(ref, {size});
}

absl::StatusOr<std::vector<float>> Weights::Tensor(
    const TensorRef& ref, const std::vector<int64_t>& shape) {
  std::vector<float> result;
  if (!ref) return result;
  ASSIGN_OR_RETURN(const TensorInfo* tensor, Use(ref, shape));
  result.resize(static_cast<size_t>(tensor->elements));
  if (shapes_only_) return result;
  RETURN_IF_ERROR(ReadTo(ref, shape, result));
  weight_bytes_ += tensor->elements * static_cast<int64_t>(sizeof(float));
  return result;
}

absl::StatusOr<EmbeddingTable> Weights::Embedding(const TensorRef& ref,
                                                  int64_t rows, int64_t cols) {
  ASSIGN_OR_RETURN(const TensorInfo* tensor, Use(ref, {rows, cols}));
  EmbeddingTable table;
  table.rows_ = rows;
  table.cols_ = cols;
  table.dtype_ = tensor->dtype;
  if (shapes_only_) return table;
  // Read as f32 in any case: that checks the type and every number.
  std::vector<float> floats(static_cast<size_t>(rows * cols));
  RETURN_IF_ERROR(checkpoint_.ReadF32(ref.name, floats));
  if (tensor->dtype == DType::kF32) {
    table.floats_ = std::move(floats);
  } else {
    table.halves_.resize(floats.size());
    std::memcpy(table.halves_.data(), tensor->bytes.data(),
                tensor->bytes.size());
  }
  const auto bytes = static_cast<int64_t>(tensor->bytes.size());
  weight_bytes_ += bytes;
  table_bytes_ += bytes;
  return table;
}

uint64_t Weights::ModelFingerprint(std::string_view config_text) const {
  Fingerprint whole = fingerprint_;
  // No tensor can have these names: a tensor of the description has no spaces.
  whole.Add("config fields", "", config_text);
  whole.Add("weight type", "", WeightTypeName(type_));
  return whole.Value();
}

std::vector<std::string> Weights::UnusedTensors() const {
  std::vector<std::string> result;
  for (const auto& item : checkpoint_.tensors()) {
    if (!used_.contains(item.first)) result.push_back(item.first);
  }
  return result;
}

}  // namespace reprise
