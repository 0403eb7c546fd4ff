// oneDNN's matmuls of one shape for every number of rows: which implementation,
// which layout of the weights. A part of linear*.cc and pack_weights.cc, which
// alone include this.
#ifndef ENGINE_KERNELS_MATMUL_H_
#define ENGINE_KERNELS_MATMUL_H_

#include <atomic>
#include <compare>
#include <cstdint>
#include <dnnl.hpp>
#include <memory>
#include <string>
#include <vector>

#include "engine/kernels/linear.h"

namespace reprise {

// The row count whose implementation a Linear uses for all. With AMX, oneDNN
// takes another one for 1 to 3 rows of many shapes; from 4 rows on it keeps
// its choice, but for matrices of a few columns, where that choice is not AMX
// and is still on offer for more rows.
inline constexpr int64_t kReferenceRows = 4;

// Row counts are rounded up to those of buckets, 0 to NumBuckets - 1.
int64_t NumBuckets(int64_t max_rows);
int64_t BucketIndex(int64_t rows);
int64_t BucketRows(int64_t index);

const dnnl::engine& CpuEngine();

// What primitives depend on. The number of threads is baked into them.
struct ShapeKey {
  WeightType type = WeightType::kF32;
  int64_t in = 0;
  int64_t out = 0;
  int64_t num_buckets = 0;
  bool has_bias = false;  // never with kInt8, whose results are sums
  int threads = 1;
  auto operator<=>(const ShapeKey&) const = default;
};

// One primitive and what it works on: y = x W (+ b), with x [rows, in] of f32,
// bf16 or u8, W [in, out] of f32, bf16 or s8, and y [rows, out] of f32 or, of
// 8-bit products, s32.
struct Kernel {
  Kernel(const dnnl::matmul::primitive_desc& desc, int64_t rows);

  dnnl::matmul primitive;
  dnnl::memory::desc source;
  dnnl::memory::desc result;
  dnnl::memory::desc scratchpad;
  int64_t rows;
  uint64_t id;  // never used again, unlike an address
};

// The primitives of one shape for every bucket, or none where oneDNN has none
// whose rows have the same bits in any company. Immutable.
struct ShapeKernels {
  dnnl::memory::desc weights;  // the packed layout, shared by all
  std::vector<Kernel> kernels;
  std::vector<size_t> by_bucket;  // index into kernels
  // Up to so many rows MultiplyFewRows is faster, if its bits are the same; 0
  // where the layout is another one.
  int64_t few_rows = 0;
  // Up to so many MultiplyTileRows is, likewise: any number or none.
  int64_t tile_rows = 0;

  // Without kernels the layout is that of ColumnBlocks, for MultiplyAnyRows.
  bool own() const { return kernels.empty(); }

  const Kernel& ForRows(int64_t rows) const {
    return kernels[by_bucket[static_cast<size_t>(BucketIndex(rows))]];
  }
};

// Layers of one shape share their primitives: generating the machine code
// takes milliseconds a shape, and a model has many layers of few shapes.
// Throws what oneDNN throws. Thread-safe.
std::shared_ptr<const ShapeKernels> GetKernels(const ShapeKey& key);

}  // namespace reprise

#endif  // ENGINE_KERNELS_MATMUL_H_
