#include "engine/kernels/linear.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <compare>
#include <dnnl.hpp>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/log.h"
#include "engine/base/mutex.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/simd_ops.h"

namespace reprise {
namespace {

using dnnl::memory;
using MatmulDesc = dnnl::matmul::primitive_desc;

// Up to 64 the steps are at most a half apart, so that a small batch wastes
// little work, and memory speed rules there anyway; beyond, a multiple of 64
// costs at most a third more.
constexpr std::array<int64_t, 12> kSmallBuckets = {1,  2,  3,  4,  6,  8,
                                                   12, 16, 24, 32, 48, 64};
constexpr int64_t kLargestSmallBucket = kSmallBuckets.back();

// The row count whose implementation a Linear uses for all. With AMX, oneDNN
// takes another one for 1 to 3 rows of many shapes; from 4 rows on it keeps
// its choice, but for matrices of a few columns, where that choice is not AMX
// and is still on offer for more rows.
constexpr int64_t kReferenceRows = 4;

int64_t NumBuckets(int64_t max_rows) {
  const int64_t small = static_cast<int64_t>(kSmallBuckets.size());
  if (max_rows <= kLargestSmallBucket) return small;
  return small + (max_rows - 1) / kLargestSmallBucket;
}

int64_t BucketIndex(int64_t rows) {
  if (rows > kLargestSmallBucket) return NumBuckets(rows) - 1;
  return std::lower_bound(kSmallBuckets.begin(), kSmallBuckets.end(), rows) -
         kSmallBuckets.begin();
}

int64_t BucketRows(int64_t index) {
  const int64_t small = static_cast<int64_t>(kSmallBuckets.size());
  if (index < small) return kSmallBuckets[index];
  return (index - small + 2) * kLargestSmallBucket;
}

// Lives for ever, so that no order of destruction matters.
const dnnl::engine& CpuEngine() {
  static const auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

memory::data_type DataType(WeightType type) {
  return type == WeightType::kBf16 ? memory::data_type::bf16
                                   : memory::data_type::f32;
}

// oneDNN's blocked matmul kernels ("brg:ISA") add up each element of the result
// over k in one order, fixed by the packed weights and not by the number of
// rows. Its other ones ("gemm:jit", "ref:any") choose their blocks of k by the
// whole problem, and their bits change with the number of rows.
bool IsExactImplementation(std::string_view name) {
  return name.substr(0, 4) == "brg:";
}

// What primitives depend on. The number of threads is baked into them.
struct ShapeKey {
  WeightType type = WeightType::kF32;
  int64_t in = 0;
  int64_t out = 0;
  int64_t num_buckets = 0;
  bool has_bias = false;
  int threads = 1;
  auto operator<=>(const ShapeKey&) const = default;
};

// The matmul of `rows` rows, by the first implementation that oneDNN offers or
// by the one called `name`. Empty if there is none.
MatmulDesc FindMatmul(const ShapeKey& key, int64_t rows,
                      const memory::desc& weights, std::string_view name) {
  const auto f32 = memory::data_type::f32;
  const auto plain = memory::format_tag::ab;
  const memory::desc source({rows, key.in}, DataType(key.type), plain);
  const memory::desc result({rows, key.out}, f32, plain);
  const dnnl::matmul::desc desc =
      key.has_bias
          ? dnnl::matmul::desc(source, weights,
                               memory::desc({1, key.out}, f32, plain), result)
          : dnnl::matmul::desc(source, weights, result);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  MatmulDesc found(desc, attr, CpuEngine(), /*allow_empty=*/true);
  while (found && !name.empty() && found.impl_info_str() != name) {
    if (!found.next_impl()) return MatmulDesc();
  }
  return found;
}

memory::desc AnyWeights(const ShapeKey& key) {
  return memory::desc({key.in, key.out}, DataType(key.type),
                      memory::format_tag::any);
}

// One primitive and what it works on.
struct Kernel {
  Kernel(const MatmulDesc& desc, int64_t rows)
      : primitive(desc),
        source(desc.src_desc()),
        result(desc.dst_desc()),
        scratchpad(desc.scratchpad_desc()),
        rows(rows),
        id(next_id++) {}

  dnnl::matmul primitive;
  memory::desc source;
  memory::desc result;
  memory::desc scratchpad;
  int64_t rows;
  uint64_t id;  // never used again, unlike an address

  static inline std::atomic<uint64_t> next_id{0};
};

// The primitives of one shape for every bucket. Immutable.
struct ShapeKernels {
  memory::desc weights;  // the packed layout, shared by all
  std::vector<Kernel> kernels;
  std::vector<size_t> by_bucket;  // index into kernels
  bool exact = true;

  const Kernel& ForRows(int64_t rows) const {
    return kernels[by_bucket[BucketIndex(rows)]];
  }
};

absl::StatusOr<std::shared_ptr<const ShapeKernels>> MakeKernels(
    const ShapeKey& key) {
  const int64_t max_rows = BucketRows(key.num_buckets - 1);
  const MatmulDesc reference =
      FindMatmul(key, kReferenceRows, AnyWeights(key), "");
  if (!reference) return absl::InternalError("oneDNN offers no matmul");
  const std::string name = reference.impl_info_str();

  auto made = std::make_shared<ShapeKernels>();
  made->exact = IsExactImplementation(name);
  MatmulDesc largest = FindMatmul(key, max_rows, AnyWeights(key), name);
  // The layout that the most rows prefer: fewer rows read the same bytes.
  made->weights = (largest ? largest : reference).weights_desc();
  made->by_bucket.resize(key.num_buckets);
  for (int64_t bucket = key.num_buckets - 1; bucket >= 0; --bucket) {
    const int64_t rows = BucketRows(bucket);
    MatmulDesc desc = FindMatmul(key, rows, made->weights, name);
    if (!desc && rows >= kReferenceRows) {
      made->exact = false;
      desc = FindMatmul(key, rows, made->weights, "");
      if (!desc) return absl::InternalError("oneDNN refuses its own layout");
    }
    // Without one of its own, the next larger bucket serves it.
    if (desc) made->kernels.emplace_back(desc, rows);
    made->by_bucket[bucket] = made->kernels.size() - 1;
  }
  return made;
}

// Layers of one shape share their primitives: generating the machine code
// takes milliseconds a shape, and a model has many layers of few shapes.
absl::StatusOr<std::shared_ptr<const ShapeKernels>> GetKernels(
    const ShapeKey& key) {
  struct Cache {
    Mutex mu;
    std::map<ShapeKey, std::weak_ptr<const ShapeKernels>> shapes
        ABSL_GUARDED_BY(mu);
  };
  static Cache& cache = *new Cache;
  MutexLock lock(cache.mu);
  std::weak_ptr<const ShapeKernels>& entry = cache.shapes[key];
  if (auto kernels = entry.lock()) return kernels;
  ASSIGN_OR_RETURN(auto kernels, MakeKernels(key));
  entry = kernels;
  return kernels;
}

// Copies `weight`, [out, in], as oneDNN's [in, out] in the layout `packed`.
memory PackWeights(MatrixView<const float> weight, WeightType type,
                   const memory::desc& packed) {
  const memory::dims dims = {weight.cols, weight.rows};
  memory result(packed, CpuEngine());
  dnnl::stream stream(CpuEngine());
  if (type == WeightType::kF32) {
    memory source({dims, memory::data_type::f32, {1, weight.stride}},
                  CpuEngine(), const_cast<float*>(weight.data));
    dnnl::reorder(source, result).execute(stream, source, result);
    stream.wait();
    return result;
  }
  // Rounded by our own code first: oneDNN has a fast reorder for bf16 to bf16.
  std::vector<uint16_t> rounded(weight.rows * weight.cols);
  for (int64_t row = 0; row < weight.rows; ++row) {
    F32ToBf16(weight.Row(row), weight.cols, rounded.data() + row * weight.cols);
  }
  memory source({dims, memory::data_type::bf16, {1, weight.cols}}, CpuEngine(),
                rounded.data());
  dnnl::reorder(source, result).execute(stream, source, result);
  stream.wait();
  return result;
}

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
  }
  return "unknown";
}

absl::StatusOr<WeightType> ResolveWeightType(WeightType type) {
  if (type == WeightType::kF32) return type;
  // Any common shape shows what the CPU has.
  const ShapeKey key{.type = WeightType::kBf16, .in = 256, .out = 256};
  std::string name;
  try {
    const MatmulDesc probe =
        FindMatmul(key, kReferenceRows, AnyWeights(key), "");
    if (probe) name = probe.impl_info_str();
  } catch (const dnnl::error& error) {
    return absl::InternalError(absl::StrCat("oneDNN: ", error.what()));
  }
  if (type == WeightType::kAuto) {
    return IsExactImplementation(name) ? WeightType::kBf16 : WeightType::kF32;
  }
  if (name.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("weights: this CPU (", CpuIsaName(),
                     ") cannot multiply bf16; use f32"));
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

  dnnl::stream stream{CpuEngine()};
  std::unordered_map<uint64_t, Bound> bound;  // by Kernel::id
  std::vector<Line> scratchpad;               // of the most demanding kernel
  std::vector<uint16_t> source;               // bf16, [kernel rows, in]
};

LinearScratch::LinearScratch() : impl_(std::make_unique<Impl>()) {}
LinearScratch::~LinearScratch() = default;
LinearScratch::LinearScratch(LinearScratch&&) noexcept = default;
LinearScratch& LinearScratch::operator=(LinearScratch&&) noexcept = default;

struct Linear::Impl {
  WeightType type;
  int64_t in;
  int64_t out;
  int64_t max_rows;
  // shared: all Linears of one shape.
  std::shared_ptr<const ShapeKernels> kernels;
  memory weights;
  memory bias;  // empty if there is none
};

Linear::Linear(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Linear::~Linear() = default;
Linear::Linear(Linear&&) noexcept = default;
Linear& Linear::operator=(Linear&&) noexcept = default;

absl::StatusOr<Linear> Linear::Create(MatrixView<const float> weight,
                                      std::span<const float> bias,
                                      const Options& options) {
  CHECK(options.type != WeightType::kAuto && options.max_rows >= 1);
  CHECK(weight.rows >= 1 && weight.cols >= 1);
  CHECK(bias.empty() || std::ssize(bias) == weight.rows);
  const ShapeKey key{.type = options.type,
                     .in = weight.cols,
                     .out = weight.rows,
                     .num_buckets = NumBuckets(options.max_rows),
                     .has_bias = !bias.empty(),
                     .threads = omp_get_max_threads()};
  auto impl = std::make_unique<Impl>();
  impl->type = options.type;
  impl->in = weight.cols;
  impl->out = weight.rows;
  impl->max_rows = options.max_rows;
  try {
    ASSIGN_OR_RETURN(impl->kernels, GetKernels(key));
    impl->weights = PackWeights(weight, key.type, impl->kernels->weights);
    if (!bias.empty()) {
      impl->bias =
          memory({{1, key.out}, memory::data_type::f32, memory::format_tag::ab},
                 CpuEngine());
      std::copy(bias.begin(), bias.end(),
                static_cast<float*>(impl->bias.get_data_handle()));
    }
  } catch (const dnnl::error& error) {
    return absl::InternalError(absl::StrCat("oneDNN: ", error.what()));
  }
  return Linear(std::move(impl));
}

void Linear::Apply(MatrixView<const float> x, MatrixView<float> y,
                   LinearScratch& scratch) const {
  CHECK(x.rows >= 1 && x.rows <= impl_->max_rows && x.rows == y.rows);
  CHECK(x.cols == impl_->in && x.stride == x.cols);
  CHECK(y.cols == impl_->out && y.stride == y.cols);
  const Kernel& kernel = impl_->kernels->ForRows(x.rows);
  LinearScratch::Impl& work = *scratch.impl_;
  const void* source = x.data;
  if (impl_->type == WeightType::kBf16) {
    const size_t size = kernel.rows * impl_->in;
    if (work.source.size() < size) work.source.resize(size);
    F32ToBf16(x.data, x.rows * impl_->in, work.source.data());
    source = work.source.data();
  }
  // The C interface: the C++ one builds a map at every call.
  LinearScratch::Impl::Bound& bound = work.Bind(kernel);
  CheckOk(dnnl_memory_set_data_handle(bound.source.get(),
                                      const_cast<void*>(source)));
  CheckOk(dnnl_memory_set_data_handle(bound.result.get(), y.data));
  CheckOk(dnnl_memory_set_data_handle(bound.scratchpad.get(),
                                      work.scratchpad.data()));
  std::array<dnnl_exec_arg_t, 5> args = {{
      {DNNL_ARG_SRC, bound.source.get()},
      {DNNL_ARG_WEIGHTS, impl_->weights.get()},
      {DNNL_ARG_DST, bound.result.get()},
      {DNNL_ARG_SCRATCHPAD, bound.scratchpad.get()},
  }};
  int num_args = 4;
  if (impl_->bias) args[num_args++] = {DNNL_ARG_BIAS, impl_->bias.get()};
  CheckOk(dnnl_primitive_execute(kernel.primitive.get(), work.stream.get(),
                                 num_args, args.data()));
}

void Linear::Reserve(LinearScratch& scratch) const {
  LinearScratch::Impl& work = *scratch.impl_;
  int64_t rows = 0;
  for (const Kernel& kernel : impl_->kernels->kernels) {
    work.Bind(kernel);
    rows = std::max(rows, kernel.rows);
  }
  if (impl_->type != WeightType::kBf16) return;
  const auto size = static_cast<size_t>(rows * impl_->in);
  if (work.source.size() < size) work.source.resize(size);
}

int64_t Linear::in() const { return impl_->in; }
int64_t Linear::out() const { return impl_->out; }

int64_t Linear::packed_bytes() const {
  const int64_t bias = impl_->bias ? impl_->bias.get_desc().get_size() : 0;
  return static_cast<int64_t>(impl_->weights.get_desc().get_size()) + bias;
}

bool Linear::exact() const { return impl_->kernels->exact; }

}  // namespace reprise
