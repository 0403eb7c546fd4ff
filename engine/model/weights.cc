#include "engine/model/weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/model/json_text.h"
#include "engine/model/packed_cache.h"

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

std::string_view PartOf(const TensorInfo& tensor, int64_t first,
                        int64_t count) {
  const int64_t bytes = DTypeBytes(tensor.dtype);
  return tensor.bytes.substr(static_cast<size_t>(first * bytes),
                             static_cast<size_t>(count * bytes));
}

// With its length in front, so that a name cannot run into what follows.
std::string Sized(const std::string& name) {
  return absl::StrCat(name.size(), ":", name);
}

// Everything about a matrix that its packed bits depend on, but for the
// tensors' numbers.
std::string CacheKey(std::span<const LinearPart> parts, int64_t in,
                     WeightType type, int64_t rows_per_row) {
  std::string key = absl::StrCat(ToAbsl(WeightTypeName(type)), " in ", in,
                                 " rows ", rows_per_row);
  for (const LinearPart& part : parts) {
    absl::StrAppend(&key, " + ", part.out, " of ", Sized(part.ref.weight.name));
    if (part.ref.transposed) absl::StrAppend(&key, " turned");
    for (const RowRange& range : part.ref.rows) {
      absl::StrAppend(&key, " ", range.first, "x", range.count);
    }
    if (part.ref.bias) {
      absl::StrAppend(&key, " bias ", Sized(part.ref.bias.name));
    }
  }
  return key;
}

}  // namespace

Weights::Weights(const Checkpoint& checkpoint, WeightType type,
                 int64_t max_rows, LinearScratch& scratch, LoadAids aids)
    : checkpoint_(checkpoint),
      type_(type),
      max_rows_(max_rows),
      scratch_(scratch),
      aids_(aids) {
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
  if (tensor->elements == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", Quoted(ref.name), " has shape ", ShapeText(tensor->shape),
        ", which is empty; config.json (", ref.fields,
        ") must make every dimension at least 1"));
  }
  // The type is checked before anything is read.
  RETURN_IF_ERROR(checkpoint_.ReadF32Range(ref.name, 0, {}));
  if (used_.insert(ref.name).second) {
    num_parameters_ += tensor->elements;
  }
  return tensor;
}

absl::Status Weights::Hash(std::string_view name, const TensorInfo& tensor) {
  if (!hashed_.emplace(name).second) return absl::OkStatus();
  const auto digest = Fingerprint::DigestOf(
      absl::StrCat(ToAbsl(DTypeName(tensor.dtype)), ShapeText(tensor.shape)),
      tensor.bytes,
      [this](std::string_view read) { checkpoint_.DropPages(read); });
  if (fingerprint_.AddDigest(name, digest)) return absl::OkStatus();
  return aids_.cache->Refuse(absl::FailedPreconditionError(absl::StrCat(
      "it was made of another tensor ", Quoted(name), " than there is")));
}

// Of a tensor whose numbers come from the cache.
absl::Status Weights::TakeDigest(std::string_view name) {
  const Fingerprint::Digest* digest = aids_.cache->file()->FindDigest(name);
  if (digest != nullptr && fingerprint_.AddDigest(name, *digest)) {
    return absl::OkStatus();
  }
  return aids_.cache->Refuse(absl::FailedPreconditionError(absl::StrCat(
      "it was not made of the tensor ", Quoted(name), " that there is")));
}

void Weights::CountSource(int64_t bytes) {
  source_bytes_ += bytes;
  if (aids_.meter != nullptr) aids_.meter->Add(bytes);
}

absl::Status Weights::ReadTo(const TensorRef& ref,
                             const std::vector<int64_t>& shape,
                             std::span<float> out) {
  ASSIGN_OR_RETURN(const TensorInfo* tensor, Use(ref, shape));
  RETURN_IF_ERROR(Hash(ref.name, *tensor));
  RETURN_IF_ERROR(checkpoint_.ReadF32(ref.name, out));
  checkpoint_.DropPages(tensor->bytes);
  return absl::OkStatus();
}

// Rows [first, first + count) of W of `part`, [out, in], to `out`.
absl::Status Weights::ReadPartRows(const LinearPart& part, int64_t in,
                                   int64_t first, int64_t count, float* out) {
  const std::string& name = part.ref.weight.name;
  const TensorInfo& tensor = *checkpoint_.Find(name);
  const auto read = [&](int64_t row, int64_t rows) {
    const auto elements = static_cast<size_t>(rows * in);
    RETURN_IF_ERROR(checkpoint_.ReadF32Range(name, row * in, {out, elements}));
    checkpoint_.DropPages(PartOf(tensor, row * in, rows * in));
    out += elements;
    return absl::OkStatus();
  };
  if (part.ref.transposed) {
    std::vector<float> column(static_cast<size_t>(count));
    for (int64_t i = 0; i < in; ++i) {
      RETURN_IF_ERROR(
          checkpoint_.ReadF32Range(name, i * part.out + first, column));
      for (int64_t o = 0; o < count; ++o) {
        out[o * in + i] = column[static_cast<size_t>(o)];
      }
    }
    checkpoint_.DropPages(tensor.bytes);
    return absl::OkStatus();
  }
  if (part.ref.rows.empty()) return read(first, count);
  for (const RowRange& range : part.ref.rows) {
    const int64_t rows = std::min(count, range.count - first);
    if (rows > 0) {
      RETURN_IF_ERROR(read(range.first + first, rows));
      count -= rows;
    }
    first = std::max<int64_t>(0, first - range.count);
  }
  CHECK(count == 0);
  return absl::OkStatus();
}

// The same of all parts, one below the other.
absl::Status Weights::ReadRowsOf(std::span<const LinearPart> parts, int64_t in,
                                 int64_t first, int64_t count, float* out) {
  for (const LinearPart& part : parts) {
    const int64_t rows = std::min(count, part.out - first);
    if (rows > 0) {
      RETURN_IF_ERROR(ReadPartRows(part, in, first, rows, out));
      const DType dtype = checkpoint_.Find(part.ref.weight.name)->dtype;
      CountSource(rows * in * DTypeBytes(dtype));
      count -= rows;
      out += rows * in;
    }
    first = std::max<int64_t>(0, first - part.out);
  }
  CHECK(count == 0);
  return absl::OkStatus();
}

absl::StatusOr<Linear> Weights::Pack(std::span<const LinearPart> parts,
                                     int64_t in, PackAs as) {
  LinearShape shape{.in = in};
  bool biased = false;
  int64_t bytes = 0;
  for (const LinearPart& part : parts) {
    // Before any memory: a config can claim any size, a file has its own.
    ASSIGN_OR_RETURN(const TensorInfo* tensor,
                     Use(part.ref.weight, StoredShape(part, in)));
    bytes += part.out * in * DTypeBytes(tensor->dtype);
    shape.out += part.out;
    if (!part.ref.bias) continue;
    RETURN_IF_ERROR(Use(part.ref.bias, BiasShape(part)).status());
    biased = true;
  }
  if (shapes_only_) {
    CountSource(bytes);
    return ShapeOf(in, shape.out, as);
  }
  if (aids_.cache != nullptr && aids_.cache->file() != nullptr) {
    ASSIGN_OR_RETURN(Linear linear, TakePacked(parts, shape, biased, as));
    CountSource(bytes);
    return Count(std::move(linear));
  }
  ASSIGN_OR_RETURN(Linear linear, PackSource(parts, shape, biased, as));
  return Count(std::move(linear));
}

absl::StatusOr<Linear> Weights::PackSource(std::span<const LinearPart> parts,
                                           const LinearShape& shape,
                                           bool biased, PackAs as) {
  std::vector<float> bias(static_cast<size_t>(biased ? shape.out : 0));
  size_t done = 0;
  for (const LinearPart& part : parts) {
    RETURN_IF_ERROR(
        Hash(part.ref.weight.name, *checkpoint_.Find(part.ref.weight.name)));
    const auto rows = static_cast<size_t>(part.out);
    if (part.ref.bias) {
      RETURN_IF_ERROR(ReadTo(part.ref.bias, BiasShape(part),
                             std::span(bias).subspan(done, rows)));
    }
    done += rows;
  }
  const auto read = [&](int64_t first, int64_t count, float* out) {
    return ReadRowsOf(parts, shape.in, first, count, out);
  };
  ASSIGN_OR_RETURN(
      Linear linear,
      Linear::Pack(shape, read, bias,
                   {.type = as.type, .max_rows = as.max_rows}, buffer_));
  PackedFileWriter* const writer =
      aids_.cache == nullptr ? nullptr : aids_.cache->writer();
  if (writer == nullptr) return linear;
  const StoredLinear stored = linear.Store();
  if (!stored.layout.empty()) {
    writer->Add(CacheKey(parts, shape.in, as.type, as.max_rows / max_rows_),
                stored.layout, linear.weights(), stored.others);
  }
  return linear;
}

absl::StatusOr<Linear> Weights::TakePacked(std::span<const LinearPart> parts,
                                           const LinearShape& shape,
                                           bool biased, PackAs as) {
  PackedCache& cache = *aids_.cache;
  const PackedFile& file = *cache.file();
  const std::string key =
      CacheKey(parts, shape.in, as.type, as.max_rows / max_rows_);
  const PackedBlock* block = file.Find(key);
  if (block == nullptr) {
    return cache.Refuse(absl::FailedPreconditionError(
        absl::StrCat("it does not have ", Quoted(key))));
  }
  for (const LinearPart& part : parts) {
    RETURN_IF_ERROR(TakeDigest(part.ref.weight.name));
    if (part.ref.bias) RETURN_IF_ERROR(TakeDigest(part.ref.bias.name));
  }
  StoredLinear stored{.layout = block->layout,
                      .weight_bytes = block->weight_bytes,
                      .others = {}};
  absl::StatusOr<std::string> others = file.ReadOthers(*block);
  if (!others.ok()) return cache.Refuse(others.status());
  stored.others = *std::move(others);
  absl::StatusOr<Linear> linear =
      Linear::Restore(shape, biased, {.type = as.type, .max_rows = as.max_rows},
                      stored, [&](std::span<std::byte> weights) {
                        return file.ReadWeights(*block, weights);
                      });
  if (!linear.ok()) return cache.Refuse(linear.status());
  return linear;
}

Linear Weights::Count(Linear linear) {
  linear.Reserve(scratch_);
  weight_bytes_ += linear.packed_bytes();
  return linear;
}

Linear Weights::ShapeOf(int64_t in, int64_t out, PackAs as) {
  // With max_rows() of 1, as.max_rows is how often a row of x passes.
  multiplications_ += in * out * as.max_rows;
  linear_numbers_ += in * out;
  return Linear::OfShape(in, out);
}

absl::StatusOr<Linear> Weights::PackHeadLinear(MatrixView<const float> weight,
                                               std::span<const float> bias) {
  const PackAs as{.type = WeightType::kF32, .max_rows = max_rows_};
  if (shapes_only_) return ShapeOf(weight.cols, weight.rows, as);
  ASSIGN_OR_RETURN(
      Linear linear,
      Linear::Create(weight, bias, {.type = as.type, .max_rows = as.max_rows}));
  return Count(std::move(linear));
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
  CountSource(std::ssize(tensor->bytes));
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
  if (shapes_only_) {
    CountSource(std::ssize(tensor->bytes));
    return table;
  }
  RETURN_IF_ERROR(Hash(ref.name, *tensor));
  table.numbers_ = LargeBuffer(tensor->bytes.size());
  // Some rows at a time, as f32 in any case: that checks every number.
  const int64_t at_a_time = int64_t{std::min(NumThreads(), 8)} << 20;
  std::vector<float> checked;
  for (int64_t first = 0; first < tensor->elements; first += at_a_time) {
    const int64_t count = std::min(at_a_time, tensor->elements - first);
    checked.resize(static_cast<size_t>(count));
    RETURN_IF_ERROR(checkpoint_.ReadF32Range(ref.name, first, checked));
    const std::string_view bytes = PartOf(*tensor, first, count);
    std::byte* const to =
        table.numbers_.data() + first * DTypeBytes(tensor->dtype);
    // By all threads: most of it is that new pages are zeroed.
    const auto pieces = static_cast<size_t>(NumThreads());
    ParallelFor(NumThreads(), [&](int64_t i) {
      const size_t begin = bytes.size() * static_cast<size_t>(i) / pieces;
      const size_t end = bytes.size() * static_cast<size_t>(i + 1) / pieces;
      std::memcpy(to + begin, bytes.data() + begin, end - begin);
    });
    checkpoint_.DropPages(bytes);
    CountSource(std::ssize(bytes));
  }
  weight_bytes_ += std::ssize(tensor->bytes);
  table_bytes_ += std::ssize(tensor->bytes);
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
