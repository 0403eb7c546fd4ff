#include "engine/kernels/linear.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <dnnl.hpp>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/log.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/any_rows.h"
#include "engine/kernels/few_rows.h"
#include "engine/kernels/linear_scratch.h"
#include "engine/kernels/matmul.h"
#include "engine/kernels/pack_weights.h"
#include "engine/kernels/quantize.h"
#include "engine/kernels/share_columns.h"
#include "engine/kernels/simd_ops.h"
#include "engine/kernels/tile_rows.h"

namespace reprise {
namespace {

using dnnl::memory;

// Of ApplyAll.
constexpr size_t kMostCalls = 8;

}  // namespace

int64_t PaddedRows(int64_t rows) {
  return BucketRows(BucketIndex(std::max(rows, kReferenceRows)));
}

struct Linear::Impl {
  int64_t weight_bytes() const {
    return static_cast<int64_t>(weights.get_desc().get_size());
  }
  int64_t other_bytes() const {
    const size_t numbers =
        int8_scales.size() + int8_offsets.size() + int8_bias.size();
    return static_cast<int64_t>((bias ? bias.get_desc().get_size() : 0) +
                                numbers * sizeof(float));
  }
  void TakeWeights(LargeBuffer bytes);
  void TakeBias(std::span<const float> numbers);
  void CheckShapes(const MatrixView<const float>& x,
                   const MatrixView<float>& y) const;
  const void* Source(MatrixView<const float> x,
                     const LinearScratch::Impl::Room& used,
                     LinearScratch::Impl& work) const;
  bool ByTiles(int64_t rows) const;
  int64_t SourceRowBytes(int64_t rows) const;
  void AddRoom(int64_t rows, LinearScratch::Impl::Room& room) const;
  int64_t ColumnsTogether(int64_t rows) const;
  void Multiply(const void* source, int64_t all, MatrixView<float> y,
                int64_t first, int64_t last) const;
  void Finish(float row_scale, int64_t first, std::span<float> y) const;

  WeightType type;
  int64_t in;
  int64_t out;
  int64_t max_rows;
  int64_t own_rows = 0;  // up to so many, Multiply
  // shared: all Linears of one shape.
  std::shared_ptr<const ShapeKernels> kernels;
  LargeBuffer weight_memory;
  memory weights;
  memory bias;  // empty if there is none, or with 8-bit weights
  // Of 8-bit weights only, see QuantizedWeights.
  std::vector<float> int8_scales;     // [out]
  std::vector<int32_t> int8_offsets;  // [out], or empty
  std::vector<float> int8_bias;       // [out], or empty
};

Linear::Linear(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Linear::~Linear() = default;
Linear::Linear(Linear&&) noexcept = default;
Linear& Linear::operator=(Linear&&) noexcept = default;

// One without numbers.
absl::StatusOr<std::unique_ptr<Linear::Impl>> Linear::MakeImpl(
    const LinearShape& shape, bool has_bias, const Options& options) {
  CHECK(options.type != WeightType::kAuto && options.max_rows >= 1);
  CHECK(shape.out >= 1 && shape.in >= 1);
  const bool int8 = options.type == WeightType::kInt8;
  CHECK(!int8 || shape.in <= kMaxInt8Inputs);
  auto impl = std::make_unique<Impl>();
  impl->type = options.type;
  impl->in = shape.in;
  impl->out = shape.out;
  impl->max_rows = options.max_rows;
  const ShapeKey key{.type = options.type,
                     .in = shape.in,
                     .out = shape.out,
                     .num_buckets = NumBuckets(options.max_rows),
                     .has_bias = !int8 && has_bias,
                     .threads = omp_get_max_threads()};
  impl->kernels = GetKernels(key);
  if (impl->kernels->own()) impl->own_rows = options.max_rows;
  return impl;
}

void Linear::Impl::TakeWeights(LargeBuffer bytes) {
  weight_memory = std::move(bytes);
  weights = memory(kernels->weights, CpuEngine(), weight_memory.data());
}

void Linear::Impl::TakeBias(std::span<const float> numbers) {
  if (numbers.empty()) return;
  if (type == WeightType::kInt8) {
    int8_bias.assign(numbers.begin(), numbers.end());
    return;
  }
  bias = memory({{1, out}, memory::data_type::f32, memory::format_tag::ab},
                CpuEngine());
  std::copy(numbers.begin(), numbers.end(),
            static_cast<float*>(bias.get_data_handle()));
}

absl::StatusOr<Linear> Linear::Pack(const LinearShape& shape, ReadRows rows,
                                    std::span<const float> bias,
                                    const Options& options,
                                    PackBuffer& buffer) {
  CHECK(bias.empty() || std::ssize(bias) == shape.out);
  try {
    ASSIGN_OR_RETURN(std::unique_ptr<Impl> impl,
                     MakeImpl(shape, !bias.empty(), options));
    ASSIGN_OR_RETURN(
        PackedWeights packed,
        PackWeights(shape, *impl->kernels, options.type, rows, buffer));
    impl->TakeWeights(std::move(packed.bytes));
    impl->int8_scales = std::move(packed.scales);
    impl->int8_offsets = std::move(packed.offsets);
    impl->TakeBias(bias);
    Linear linear(std::move(impl));
    linear.UseFewRowsIfExact();
    return linear;
  } catch (const dnnl::error& error) {
    return absl::InternalError(absl::StrCat("oneDNN: ", error.what()));
  }
}

absl::StatusOr<Linear> Linear::Create(MatrixView<const float> weight,
                                      std::span<const float> bias,
                                      const Options& options) {
  PackBuffer buffer;
  const auto rows = [&](int64_t first, int64_t count, float* numbers) {
    for (int64_t row = 0; row < count; ++row) {
      std::copy_n(weight.Row(first + row), weight.cols,
                  numbers + row * weight.cols);
    }
    return absl::OkStatus();
  };
  return Pack({.in = weight.cols, .out = weight.rows}, rows, bias, options,
              buffer);
}

std::span<const std::byte> Linear::weights() const {
  return {impl_->weight_memory.data(), impl_->weight_memory.size()};
}

StoredLinear Linear::Store() const {
  StoredLinear stored;
  stored.layout = LayoutText(impl_->kernels->weights);
  stored.weight_bytes = impl_->weight_memory.size();
  const auto add = [&](const void* numbers, size_t count) {
    static_assert(sizeof(float) == sizeof(int32_t));
    stored.others.append(static_cast<const char*>(numbers),
                         count * sizeof(float));
  };
  add(impl_->int8_scales.data(), impl_->int8_scales.size());
  add(impl_->int8_offsets.data(), impl_->int8_offsets.size());
  add(impl_->int8_bias.data(), impl_->int8_bias.size());
  if (impl_->bias) {
    add(impl_->bias.get_data_handle(), static_cast<size_t>(impl_->out));
  }
  return stored;
}

absl::StatusOr<Linear> Linear::Restore(const LinearShape& shape, bool has_bias,
                                       const Options& options,
                                       const StoredLinear& stored,
                                       ReadWeights read) {
  const auto out = static_cast<size_t>(shape.out);
  try {
    ASSIGN_OR_RETURN(std::unique_ptr<Impl> impl,
                     MakeImpl(shape, has_bias, options));
    const memory::desc& layout = impl->kernels->weights;
    const std::string wanted = LayoutText(layout);
    if (wanted.empty() || stored.layout != wanted) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the layout is ", stored.layout, ", this process needs ", wanted));
    }
    const bool int8 = options.type == WeightType::kInt8;
    const size_t scales = int8 ? out : 0;
    const size_t offsets = int8 && !impl->kernels->own() ? out : 0;
    const size_t bias = has_bias ? out : 0;
    const size_t others = (scales + offsets + bias) * sizeof(float);
    if (stored.weight_bytes != layout.get_size() ||
        stored.others.size() != others) {
      return absl::FailedPreconditionError(absl::StrCat(
          stored.weight_bytes, " bytes of weights and ", stored.others.size(),
          " of bias and scales, this process needs ", layout.get_size(),
          " and ", others));
    }
    LargeBuffer weights(layout.get_size());
    RETURN_IF_ERROR(read({weights.data(), weights.size()}));
    impl->TakeWeights(std::move(weights));
    impl->int8_scales.resize(scales);
    impl->int8_offsets.resize(offsets);
    std::vector<float> bias_numbers(bias);
    const char* from = stored.others.data();
    const auto take = [&from](void* to, size_t count) {
      if (count > 0) std::memcpy(to, from, count * sizeof(float));
      from += count * sizeof(float);
    };
    take(impl->int8_scales.data(), scales);
    take(impl->int8_offsets.data(), offsets);
    take(bias_numbers.data(), bias);
    impl->TakeBias(bias_numbers);
    Linear linear(std::move(impl));
    linear.UseFewRowsIfExact();
    return linear;
  } catch (const dnnl::error& error) {
    return absl::InternalError(absl::StrCat("oneDNN: ", error.what()));
  }
}

Linear Linear::OfShape(int64_t in, int64_t out) {
  auto impl = std::make_unique<Impl>();
  impl->in = in;
  impl->out = out;
  impl->max_rows = 0;  // Apply refuses every number of rows
  return Linear(std::move(impl));
}

void Linear::Apply(MatrixView<const float> x, MatrixView<float> y,
                   LinearScratch& scratch) const {
  impl_->CheckShapes(x, y);
  LinearScratch::Impl& work = *scratch.impl_;
  if (x.rows <= impl_->own_rows) {
    const Call call = {this, x, y};
    return ApplyOwn({&call, 1}, scratch);
  }
  const Kernel& kernel = impl_->kernels->ForRows(x.rows);
  LinearScratch::Impl::Room room;
  impl_->AddRoom(kernel.rows, room);
  work.Reserve(room);
  const void* const source = impl_->Source(x, {}, work);
  work.Run(kernel, impl_->weights, impl_->bias, source, y.data);
  if (impl_->type != WeightType::kInt8) return;
  ForEach(x.rows, 3 * impl_->out, [&](int64_t row) {
    const float scale = work.row_scales[static_cast<size_t>(row)];
    impl_->Finish(scale, 0, y.RowSpan(row));
  });
}

void Linear::Impl::CheckShapes(const MatrixView<const float>& x,
                               const MatrixView<float>& y) const {
  CHECK(x.rows >= 1 && x.rows <= max_rows && x.rows == y.rows);
  CHECK(x.cols == in && x.stride == x.cols);
  CHECK(y.cols == out && y.stride == y.cols);
}

// Of 8 bits a few rows are faster without.
bool Linear::Impl::ByTiles(int64_t rows) const {
  if (rows > own_rows || rows > kernels->tile_rows) return false;
  return type != WeightType::kInt8 || rows > kRowsTogether;
}

// From row to row of what a matmul reads.
int64_t Linear::Impl::SourceRowBytes(int64_t rows) const {
  return ByTiles(rows) ? TileRowStride(type, in) : RowBytes(type, in);
}

void Linear::Impl::AddRoom(int64_t rows,
                           LinearScratch::Impl::Room& room) const {
  if (type == WeightType::kF32) return;
  // Begun lines, and the gap of TileRowStride.
  room.lines += rows * (RowBytes(type, in) / 64 + 2);
  if (type == WeightType::kInt8) room.rows += rows;
}

// x as a matmul reads it, in room that is not used yet.
const void* Linear::Impl::Source(MatrixView<const float> x,
                                 const LinearScratch::Impl::Room& used,
                                 LinearScratch::Impl& work) const {
  if (type == WeightType::kF32) return x.data;
  std::byte* const source = work.sources[used.lines].bytes;
  const int64_t row_bytes = SourceRowBytes(x.rows);
  float* const scales = work.row_scales.data() + used.rows;
  ForEach(x.rows, in, [&](int64_t row) {
    std::byte* const to = source + row * row_bytes;
    if (type == WeightType::kBf16) {
      F32ToBf16(x.Row(row), in, reinterpret_cast<uint16_t*>(to));
    } else if (kernels->own()) {
      scales[row] =
          QuantizeSigned(x.Row(row), in, reinterpret_cast<int8_t*>(to));
    } else {
      scales[row] =
          QuantizeShifted(x.Row(row), in, reinterpret_cast<uint8_t*>(to));
    }
  });
  return source;
}

// What our own kernels want to be given at a time: with many rows a block.
int64_t Linear::Impl::ColumnsTogether(int64_t rows) const {
  if (kernels->own()) return kAnyRowsColumns;
  return ByTiles(rows) || rows > kMostRowsByColumns ? kBlockColumns
                                                    : kVectorColumns;
}

// Columns `first` to `last` of the sums of some of `all` rows, by our own
// kernels.
void Linear::Impl::Multiply(const void* source, int64_t all,
                            MatrixView<float> y, int64_t first,
                            int64_t last) const {
  const std::byte* const w = weight_memory.data();
  if (kernels->own()) {
    MultiplyAnyRows({.type = type, .in = in, .out = out, .weights = w},
                    {.x = source, .count = y.rows, .sums = y.data}, first,
                    last);
    return;
  }
  auto* const multiply = ByTiles(all) ? MultiplyTileRows : MultiplyFewRows;
  multiply({.type = type, .in = in, .out = out, .weights = w},
           {.x = source, .count = y.rows, .sums = y.data}, first, last);
}

// Turns sums, of a row's columns from `first` on, into results. Those of
// integers take the place of the numbers that they become.
void Linear::Impl::Finish(float row_scale, int64_t first,
                          std::span<float> y) const {
  if (type == WeightType::kInt8) {
    const auto from = [first](const auto& numbers) {
      return numbers.empty() ? nullptr : numbers.data() + first;
    };
    const Dequantizer scales = {.column_scales = from(int8_scales),
                                .bias = from(int8_bias),
                                .offsets = from(int8_offsets),
                                .row_scale = row_scale};
    Dequantize(scales, reinterpret_cast<const int32_t*>(y.data()),
               std::ssize(y), y.data());
  } else if (bias) {
    AddInto(static_cast<const float*>(bias.get_data_handle()) + first,
            std::ssize(y), y.data());
  }
}

void Linear::ApplyAll(std::span<const Call> calls, LinearScratch& scratch) {
  const bool few = std::all_of(calls.begin(), calls.end(), [](const Call& c) {
    return c.x.rows <= std::min(c.linear->impl_->own_rows, kMostFewRows);
  });
  if (few) return ApplyOwn(calls, scratch);
  for (const Call& call : calls) call.linear->Apply(call.x, call.y, scratch);
}

// By our own kernels, one call of any number of rows that they take, or some of
// few rows.
void Linear::ApplyOwn(std::span<const Call> calls, LinearScratch& scratch) {
  if (calls.empty()) return;
  CHECK(calls.size() <= kMostCalls);
  LinearScratch::Impl& work = *scratch.impl_;
  LinearScratch::Impl::Room room;
  for (const auto& [linear, x, y] : calls) {
    linear->impl_->CheckShapes(x, y);
    linear->impl_->AddRoom(x.rows, room);
  }
  work.Reserve(room);
  std::array<ColumnBytes, kMostCalls> matrices;
  std::array<const void*, kMostCalls> sources;
  std::array<int64_t, kMostCalls> first_rows;  // of their scales
  LinearScratch::Impl::Room used;
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto& [linear, x, y] = calls[i];
    const Impl& impl = *linear->impl_;
    first_rows[i] = used.rows;
    sources[i] = impl.Source(x, used, work);
    const int64_t group = impl.ColumnsTogether(x.rows);
    matrices[i] = {.columns = impl.out,
                   .group = group,
                   .group_bytes = group * RowBytes(impl.type, impl.in),
                   .rows = x.rows};
    impl.AddRoom(x.rows, used);
  }
  // Rows and columns of one call.
  const auto compute = [&](size_t i, int64_t row, int64_t rows, int64_t first,
                           int64_t last) {
    const auto& [linear, x, y] = calls[i];
    const Impl& impl = *linear->impl_;
    const int64_t row_bytes = impl.SourceRowBytes(calls[i].x.rows);
    impl.Multiply(static_cast<const std::byte*>(sources[i]) + row * row_bytes,
                  x.rows, {y.Row(row), rows, y.cols}, first, last);
    const float* const scales = work.row_scales.data() + first_rows[i];
    for (int64_t r = row; r < row + rows; ++r) {
      const float scale = impl.type == WeightType::kInt8 ? scales[r] : 0;
      impl.Finish(scale, first, y.RowSpan(r).subspan(first, last - first));
    }
  };
  const int64_t rows = calls[0].x.rows;
  const int64_t out = calls[0].y.cols;
  const int64_t threads = NumThreads();
  if (rows > kMostRowsByColumns && calls.size() == 1 &&
      out < 2 * threads * kVectorColumns) {
    // One call of few columns.
    ForEach(threads, rows * out * calls[0].x.cols / threads, [&](int64_t part) {
      const int64_t row = rows * part / threads;
      const int64_t end = rows * (part + 1) / threads;
      if (row < end) compute(0, row, end - row, 0, out);
    });
    return;
  }
  ShareColumns(std::span(matrices).first(calls.size()),
               [&](size_t i, int64_t first, int64_t last) {
                 compute(i, 0, calls[i].x.rows, first, last);
               });
}

// Lets few rows go another way than oneDNN's if it has oneDNN's bits, found out
// with random numbers.
void Linear::UseFewRowsIfExact() {
  const int64_t rows = std::min(kReferenceRows, impl_->max_rows);
  if (impl_->kernels->few_rows + impl_->kernels->tile_rows == 0) return;
  std::vector<float> x(static_cast<size_t>(PaddedRows(rows) * in()));
  uint32_t random = 1;
  for (float& number : x) {
    random = random * 1664525 + 1013904223;  // Numerical Recipes
    number = std::bit_cast<float>(0x3f800000 | random >> 9) - 1.5F;
  }
  LinearScratch scratch;
  std::array<std::vector<float>, 2> y;
  for (std::vector<float>& numbers : y) {
    numbers.resize(static_cast<size_t>(PaddedRows(rows) * out()));
    Apply({x.data(), rows, in()}, {numbers.data(), rows, out()}, scratch);
    impl_->own_rows =
        std::max(impl_->kernels->few_rows, impl_->kernels->tile_rows);
  }
  const size_t bytes = static_cast<size_t>(rows * out()) * sizeof(float);
  if (std::memcmp(y[0].data(), y[1].data(), bytes) != 0) impl_->own_rows = 0;
}

void Linear::Reserve(LinearScratch& scratch) const {
  LinearScratch::Impl& work = *scratch.impl_;
  int64_t rows = impl_->own_rows;
  if (rows > 0) {
    const int64_t few = std::min(impl_->max_rows, kMostFewRows);
    rows = std::max(rows, int64_t{kMostCalls} * few);
  }
  for (const Kernel& kernel : impl_->kernels->kernels) {
    work.Bind(kernel);
    rows = std::max(rows, kernel.rows);
  }
  LinearScratch::Impl::Room room;
  impl_->AddRoom(rows, room);
  work.Reserve(room);
}

int64_t Linear::in() const { return impl_->in; }
int64_t Linear::out() const { return impl_->out; }

int64_t Linear::packed_bytes() const {
  return impl_->weight_bytes() + impl_->other_bytes();
}

int64_t Linear::own_rows() const { return impl_->own_rows; }

}  // namespace reprise
