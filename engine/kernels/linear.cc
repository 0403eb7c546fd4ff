#include "engine/kernels/linear.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <dnnl.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/log.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/matmul.h"
#include "engine/kernels/pack_weights.h"
#include "engine/kernels/quantize.h"
#include "engine/kernels/simd_ops.h"

namespace reprise {
namespace {

using dnnl::memory;

// Rows that one matmul takes where sums saturate, and each row is two: few
// enough that the sums stay small beside a model, and enough to be fast.
constexpr int64_t kSplitRows = 32;

// oneDNN's errors of Apply leave no way to go on: arguments were checked when
// the primitive was made.
void CheckOk(dnnl_status_t status) { CHECK(status == dnnl_success); }

}  // namespace

std::string_view WeightTypeName(WeightType type) {
  switch (type) {
    case WeightType::kAuto:
      return "auto";
    case WeightType::kF32:
      return "f32";
    case WeightType::kBf16:
      return "bf16";
    case WeightType::kInt8:
      return "int8";
  }
  return "unknown";
}

absl::StatusOr<WeightType> ResolveWeightType(WeightType type) {
  if (type == WeightType::kF32 || type == WeightType::kInt8) return type;
  std::string name;
  try {
    name = CommonImplementation(WeightType::kBf16);
  } catch (const dnnl::error& error) {
    return absl::InternalError(absl::StrCat("oneDNN: ", error.what()));
  }
  if (type == WeightType::kAuto) {
    return IsExactImplementation(name) ? WeightType::kBf16 : WeightType::kF32;
  }
  if (name.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("weights: this CPU (", CpuIsaName(),
                     ") cannot multiply bf16; use f32 or int8"));
  }
  return type;
}

std::string CpuIsaName() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    default:
      return "other";
  }
}

std::string LinearLibraryVersion() {
  const dnnl_version_t& version = *dnnl_version();
  return absl::StrCat("oneDNN ", version.major, ".", version.minor, ".",
                      version.patch, " ", version.hash);
}

int64_t PaddedRows(int64_t rows) {
  return BucketRows(BucketIndex(std::max(rows, kReferenceRows)));
}

struct LinearScratch::Impl {
  // Memory objects of one kernel; their handles are set at every call.
  struct Bound {
    explicit Bound(const Kernel& kernel)
        : source(kernel.source, CpuEngine(), nullptr),
          result(kernel.result, CpuEngine(), nullptr),
          scratchpad(kernel.scratchpad, CpuEngine(), nullptr) {}
    memory source;
    memory result;
    memory scratchpad;
  };
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  Bound& Bind(const Kernel& kernel) {
    const auto found = bound.find(kernel.id);
    if (found != bound.end()) return found->second;
    const size_t lines = (kernel.scratchpad.get_size() + 63) / 64;
    if (scratchpad.size() < lines) scratchpad.resize(lines);
    return bound.emplace(kernel.id, kernel).first->second;
  }

  // Executes `kernel` on kernel.rows rows.
  void Run(const Kernel& kernel, const memory& weights, const memory& bias,
           const void* source, void* result);

  dnnl::stream stream{CpuEngine()};
  std::unordered_map<uint64_t, Bound> bound;  // by Kernel::id
  std::vector<Line> scratchpad;               // of the most demanding kernel
  std::vector<uint16_t> source;               // bf16, [kernel rows, in]
  // Of 8-bit matmuls:
  std::vector<uint8_t> quantized;  // [kernel rows, in]
  std::vector<float> row_scales;   // [rows]
  std::vector<int32_t> sums;       // [2 kSplitRows, out] where sums saturate
};

// The C interface: the C++ one builds a map at every call.
void LinearScratch::Impl::Run(const Kernel& kernel, const memory& weights,
                              const memory& bias, const void* source,
                              void* result) {
  Bound& memories = Bind(kernel);
  CheckOk(dnnl_memory_set_data_handle(memories.source.get(),
                                      const_cast<void*>(source)));
  CheckOk(dnnl_memory_set_data_handle(memories.result.get(), result));
  CheckOk(dnnl_memory_set_data_handle(memories.scratchpad.get(),
                                      scratchpad.data()));
  std::array<dnnl_exec_arg_t, 5> args = {{
      {DNNL_ARG_SRC, memories.source.get()},
      {DNNL_ARG_WEIGHTS, weights.get()},
      {DNNL_ARG_DST, memories.result.get()},
      {DNNL_ARG_SCRATCHPAD, memories.scratchpad.get()},
  }};
  int num_args = 4;
  if (bias) args[num_args++] = {DNNL_ARG_BIAS, bias.get()};
  CheckOk(dnnl_primitive_execute(kernel.primitive.get(), stream.get(), num_args,
                                 args.data()));
}

template <class T>
void Grow(std::vector<T>& values, int64_t size) {
  if (std::ssize(values) < size) values.resize(static_cast<size_t>(size));
}

LinearScratch::LinearScratch() : impl_(std::make_unique<Impl>()) {}
LinearScratch::~LinearScratch() = default;
LinearScratch::LinearScratch(LinearScratch&&) noexcept = default;
LinearScratch& LinearScratch::operator=(LinearScratch&&) noexcept = default;

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
  const float* Int8Bias() const {
    return int8_bias.empty() ? nullptr : int8_bias.data();
  }

  void TakeWeights(LargeBuffer bytes);
  void TakeBias(std::span<const float> numbers);
  void ApplyShifted(MatrixView<const float> x, MatrixView<float> y,
                    LinearScratch::Impl& work) const;
  void ApplySplit(MatrixView<const float> x, MatrixView<float> y,
                  LinearScratch::Impl& work) const;

  WeightType type;
  int64_t in;
  int64_t out;
  int64_t max_rows;
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
  const int64_t most_rows = int8 && EightBitSumsSaturate()
                                ? std::min(options.max_rows, 2 * kSplitRows)
                                : options.max_rows;
  const ShapeKey key{.type = options.type,
                     .in = shape.in,
                     .out = shape.out,
                     .num_buckets = NumBuckets(most_rows),
                     .has_bias = !int8 && has_bias,
                     .threads = omp_get_max_threads()};
  ASSIGN_OR_RETURN(impl->kernels, GetKernels(key));
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
        PackWeights(shape, options.type, impl->kernels->weights, rows, buffer));
    impl->TakeWeights(std::move(packed.bytes));
    impl->int8_scales = std::move(packed.scales);
    impl->int8_offsets = std::move(packed.offsets);
    impl->TakeBias(bias);
    return Linear(std::move(impl));
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
    const size_t offsets = int8 && !EightBitSumsSaturate() ? out : 0;
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
    return Linear(std::move(impl));
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
  CHECK(x.rows >= 1 && x.rows <= impl_->max_rows && x.rows == y.rows);
  CHECK(x.cols == impl_->in && x.stride == x.cols);
  CHECK(y.cols == impl_->out && y.stride == y.cols);
  LinearScratch::Impl& work = *scratch.impl_;
  if (impl_->type == WeightType::kInt8) {
    if (EightBitSumsSaturate()) return impl_->ApplySplit(x, y, work);
    return impl_->ApplyShifted(x, y, work);
  }
  const Kernel& kernel = impl_->kernels->ForRows(x.rows);
  const void* source = x.data;
  if (impl_->type == WeightType::kBf16) {
    Grow(work.source, kernel.rows * impl_->in);
    F32ToBf16(x.data, x.rows * impl_->in, work.source.data());
    source = work.source.data();
  }
  work.Run(kernel, impl_->weights, impl_->bias, source, y.data);
}

// The sums take the place of the numbers that they become.
void Linear::Impl::ApplyShifted(MatrixView<const float> x, MatrixView<float> y,
                                LinearScratch::Impl& work) const {
  const Kernel& kernel = kernels->ForRows(x.rows);
  Grow(work.quantized, kernel.rows * in);
  Grow(work.row_scales, x.rows);
  ForEach(x.rows, in, [&](int64_t row) {
    work.row_scales[static_cast<size_t>(row)] =
        QuantizeShifted(x.Row(row), in, work.quantized.data() + row * in);
  });
  work.Run(kernel, weights, bias, work.quantized.data(), y.data);
  ForEach(x.rows, 3 * out, [&](int64_t row) {
    const Dequantizer scales = {
        .column_scales = int8_scales.data(),
        .bias = Int8Bias(),
        .row_scale = work.row_scales[static_cast<size_t>(row)]};
    Dequantize(scales, reinterpret_cast<const int32_t*>(y.Row(row)),
               int8_offsets.data(), out, y.Row(row));
  });
}

// Every row is two: its positive numbers, and its negative ones turned
// positive. The difference of their sums is what ApplyShifted computes.
void Linear::Impl::ApplySplit(MatrixView<const float> x, MatrixView<float> y,
                              LinearScratch::Impl& work) const {
  for (int64_t first = 0; first < x.rows; first += kSplitRows) {
    const int64_t rows = std::min(kSplitRows, x.rows - first);
    const Kernel& kernel = kernels->ForRows(2 * rows);
    Grow(work.quantized, kernel.rows * in);
    Grow(work.row_scales, rows);
    Grow(work.sums, kernel.rows * out);
    ForEach(rows, in, [&](int64_t row) {
      uint8_t* const q = work.quantized.data() + row * in;
      work.row_scales[static_cast<size_t>(row)] =
          QuantizeSplit(x.Row(first + row), in, q, q + rows * in);
    });
    work.Run(kernel, weights, bias, work.quantized.data(), work.sums.data());
    ForEach(rows, 4 * out, [&](int64_t row) {
      const int32_t* const sums = work.sums.data() + row * out;
      const Dequantizer scales = {
          .column_scales = int8_scales.data(),
          .bias = Int8Bias(),
          .row_scale = work.row_scales[static_cast<size_t>(row)]};
      Dequantize(scales, sums, sums + rows * out, out, y.Row(first + row));
    });
  }
}

void Linear::Reserve(LinearScratch& scratch) const {
  LinearScratch::Impl& work = *scratch.impl_;
  int64_t rows = 0;
  for (const Kernel& kernel : impl_->kernels->kernels) {
    work.Bind(kernel);
    rows = std::max(rows, kernel.rows);
  }
  if (impl_->type == WeightType::kBf16) Grow(work.source, rows * impl_->in);
  if (impl_->type != WeightType::kInt8) return;
  Grow(work.quantized, rows * impl_->in);
  Grow(work.row_scales, impl_->max_rows);
  if (EightBitSumsSaturate()) Grow(work.sums, rows * impl_->out);
}

int64_t Linear::in() const { return impl_->in; }
int64_t Linear::out() const { return impl_->out; }

int64_t Linear::packed_bytes() const {
  return impl_->weight_bytes() + impl_->other_bytes();
}

bool Linear::exact() const { return impl_->kernels->exact; }

}  // namespace reprise
