#include "engine/kernels/matmul.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "engine/base/mutex.h"
#include "engine/kernels/any_rows.h"
#include "engine/kernels/few_rows.h"
#include "engine/kernels/tile_rows.h"

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

struct Types {
  memory::data_type source;
  memory::data_type weights;
  memory::data_type result;
};

Types TypesOf(WeightType type) {
  using Type = memory::data_type;
  switch (type) {
    case WeightType::kBf16:
      return {Type::bf16, Type::bf16, Type::f32};
    case WeightType::kInt8:
      return {Type::u8, Type::s8, Type::s32};
    default:
      return {Type::f32, Type::f32, Type::f32};
  }
}

memory::desc AnyWeights(const ShapeKey& key) {
  return memory::desc({key.in, key.out}, TypesOf(key.type).weights,
                      memory::format_tag::any);
}

// The matmul of `rows` rows, by the first implementation that oneDNN offers or
// by the one called `name`. Empty if there is none.
MatmulDesc FindMatmul(const ShapeKey& key, int64_t rows,
                      const memory::desc& weights, std::string_view name) {
  const Types types = TypesOf(key.type);
  const auto plain = memory::format_tag::ab;
  const memory::desc source({rows, key.in}, types.source, plain);
  const memory::desc result({rows, key.out}, types.result, plain);
  const dnnl::matmul::desc desc =
      key.has_bias
          ? dnnl::matmul::desc(
                source, weights,
                memory::desc({1, key.out}, memory::data_type::f32, plain),
                result)
          : dnnl::matmul::desc(source, weights, result);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  MatmulDesc found(desc, attr, CpuEngine(), /*allow_empty=*/true);
  while (found && !name.empty() && found.impl_info_str() != name) {
    if (!found.next_impl()) return MatmulDesc();
  }
  return found;
}

// Whether the layout is that of PackedColumns.
bool IsInColumnBlocks(const memory::desc& layout, const ShapeKey& key) {
  const dnnl_memory_desc_t& d = layout.data;
  if (d.format_kind != dnnl_blocked || d.extra.flags != 0 || d.offset0 != 0) {
    return false;
  }
  const dnnl_blocking_desc_t& blocks = d.format_desc.blocking;
  const int64_t per_step = NumbersPerStep(key.type);
  const std::array<int64_t, 3> sizes = {kPaddedSteps, kBlockColumns, per_step};
  const std::array<int64_t, 3> dimensions = {0, 1, 0};
  const int count = per_step == 1 ? 2 : 3;
  const int64_t block_in = kPaddedSteps * per_step;
  const int64_t padded_in = (key.in + block_in - 1) / block_in * block_in;
  return key.in % per_step == 0 && blocks.inner_nblks == count &&
         std::equal(sizes.begin(), sizes.begin() + count, blocks.inner_blks) &&
         std::equal(dimensions.begin(), dimensions.begin() + count,
                    blocks.inner_idxs) &&
         d.padded_dims[0] == padded_in &&
         blocks.strides[0] == block_in * kBlockColumns &&
         blocks.strides[1] == padded_in * kBlockColumns;
}

// Then the CPU has AMX, and oneDNN has asked the system for it.
bool UsesTiles(std::string_view name) {
  return name.find("amx") != std::string_view::npos;
}

uint64_t NextKernelId() {
  static std::atomic<uint64_t> next = 0;
  return next++;
}

// oneDNN's blocked matmul kernels ("brg:ISA") add up each element of the result
// over k in one order, fixed by the packed weights and not by the number of
// rows. Its other ones ("gemm:jit", "ref:any") choose their blocks of k by the
// whole problem, and their bits change with the number of rows.
bool IsExactImplementation(std::string_view name) {
  return name.substr(0, 4) == "brg:";
}

// What the matmul of `shape` makes of a source of all `x` and weights of all
// `w`: whether every element is right.
bool SumsAreRight(const ShapeKey& shape, uint8_t x, int8_t w) {
  const MatmulDesc desc =
      FindMatmul(shape, kReferenceRows, AnyWeights(shape), "");
  if (!desc) return true;
  const Kernel kernel(desc, kReferenceRows);
  memory source(kernel.source, CpuEngine());
  memory weights(desc.weights_desc(), CpuEngine());
  memory result(kernel.result, CpuEngine());
  memory scratchpad(kernel.scratchpad, CpuEngine());
  std::fill_n(static_cast<uint8_t*>(source.get_data_handle()),
              kReferenceRows * shape.in, x);
  std::vector<int8_t> plain(static_cast<size_t>(shape.in * shape.out), w);
  memory unpacked(
      {{shape.in, shape.out}, memory::data_type::s8, memory::format_tag::ab},
      CpuEngine(), plain.data());
  dnnl::stream stream(CpuEngine());
  dnnl::reorder(unpacked, weights).execute(stream, unpacked, weights);
  kernel.primitive.execute(stream, {{DNNL_ARG_SRC, source},
                                    {DNNL_ARG_WEIGHTS, weights},
                                    {DNNL_ARG_DST, result},
                                    {DNNL_ARG_SCRATCHPAD, scratchpad}});
  stream.wait();
  const auto* sums = static_cast<const int32_t*>(result.get_data_handle());
  const auto expected = static_cast<int32_t>(shape.in * x * w);
  return std::all_of(sums, sums + kReferenceRows * shape.out,
                     [expected](int32_t sum) { return sum == expected; });
}

// Whether oneDNN's sums of 8-bit products are right for all numbers, or only if
// those of the source are below 128. Before VNNI, x86 adds two neighbouring
// products in 16 bits and cuts the sum off at 32767, which 2 * 255 * 127 is
// above. Found out with such numbers, once.
bool EightBitSumsSaturate() {
  // Any common shape shows what the CPU has.
  const ShapeKey common = {.type = WeightType::kInt8, .in = 256, .out = 256};
  static const bool saturate =
      !SumsAreRight(common, 255, 127) || !SumsAreRight(common, 255, -127);
  return saturate;
}

std::shared_ptr<const ShapeKernels> OwnKernels(const ShapeKey& key) {
  auto made = std::make_shared<ShapeKernels>();
  made->weights = memory::desc({key.in, key.out}, TypesOf(key.type).weights,
                               memory::format_tag::BA16a16b);
  static_assert(kAnyRowsColumns == 16 && PaddedNumbers(1) == 16);
  return made;
}

std::shared_ptr<const ShapeKernels> MakeKernels(const ShapeKey& key) {
  const int64_t max_rows = BucketRows(key.num_buckets - 1);
  const MatmulDesc reference =
      FindMatmul(key, kReferenceRows, AnyWeights(key), "");
  if (!reference) return OwnKernels(key);
  // Sums of integers are exact in any order, so any implementation will do.
  const bool integers = key.type == WeightType::kInt8;
  const std::string name = integers ? "" : reference.impl_info_str();
  if (!IsExactImplementation(reference.impl_info_str()) ||
      (integers && EightBitSumsSaturate())) {
    return OwnKernels(key);
  }
  auto made = std::make_shared<ShapeKernels>();
  MatmulDesc largest = FindMatmul(key, max_rows, AnyWeights(key), name);
  // The layout that the most rows prefer: fewer rows read the same bytes.
  made->weights = (largest ? largest : reference).weights_desc();
  if (IsInColumnBlocks(made->weights, key)) {
    made->few_rows = MostFewRows(key.type);
    const bool tiles =
        UsesTiles(reference.impl_info_str()) && FitTiles(key.type, key.in);
    if (tiles) made->tile_rows = max_rows;
  }
  made->by_bucket.resize(static_cast<size_t>(key.num_buckets));
  for (int64_t bucket = key.num_buckets - 1; bucket >= 0; --bucket) {
    const int64_t rows = BucketRows(bucket);
    MatmulDesc desc = FindMatmul(key, rows, made->weights, name);
    // Our own would be exact, too, but whether a matrix is theirs must not
    // depend on how many rows there may be.
    if (!desc && rows >= kReferenceRows) {
      throw dnnl::error(dnnl_unimplemented, "oneDNN refuses its own layout");
    }
    // Without one of its own, the next larger bucket serves it.
    if (desc) made->kernels.emplace_back(desc, rows);
    made->by_bucket[static_cast<size_t>(bucket)] = made->kernels.size() - 1;
  }
  return made;
}

}  // namespace

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
  if (index < small) return kSmallBuckets[static_cast<size_t>(index)];
  return (index - small + 2) * kLargestSmallBucket;
}

// Lives for ever, so that no order of destruction matters.
const dnnl::engine& CpuEngine() {
  static const auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

Kernel::Kernel(const dnnl::matmul::primitive_desc& desc, int64_t rows)
    : primitive(desc),
      source(desc.src_desc()),
      result(desc.dst_desc()),
      scratchpad(desc.scratchpad_desc()),
      rows(rows),
      id(NextKernelId()) {}

std::shared_ptr<const ShapeKernels> GetKernels(const ShapeKey& key) {
  struct Cache {
    Mutex mu;
    std::map<ShapeKey, std::weak_ptr<const ShapeKernels>> shapes
        ABSL_GUARDED_BY(mu);
  };
  static Cache& cache = *new Cache;
  MutexLock lock(cache.mu);
  std::weak_ptr<const ShapeKernels>& entry = cache.shapes[key];
  if (auto kernels = entry.lock()) return kernels;
  auto kernels = MakeKernels(key);
  entry = kernels;
  return kernels;
}

}  // namespace reprise
