// Sums of x W for a few rows of x, straight from the layout that oneDNN packs W
// in on CPUs with AVX-512. A part of linear.cc and matmul.cc.
//
// Why: with one row or two, oneDNN's kernels prefetch one line in four of what
// they are about to read, which keeps the CPU from doing it by itself: of f32
// and bf16 they read half as fast as memory allows (EPYC 9004, oneDNN 2.6.3).
// These fetch what they need soon, which is faster than leaving it to the CPU
// (f32 by a quarter on a Xeon of 2023). With more rows, oneDNN's kernels
// compute and then wait for memory; these fetch the weights that come next
// while they compute, up to a sixth faster in a step of 12 to 32 sessions, and
// as fast with 64 (EPYC 9005).
//
// Exactness: one number (bf16: a pair, int8: four) of a row after the other is
// multiplied and added to a sum that begins with zero, and the sums of chunks
// are added up: that is the order of oneDNN's blocked kernels, so the bits are
// theirs. Linear makes sure of it for every matrix.
#ifndef ENGINE_KERNELS_FEW_ROWS_H_
#define ENGINE_KERNELS_FEW_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/linear.h"

namespace reprise {

// Columns that are next to each other in a vector.
inline constexpr int64_t kVectorColumns = 16;

// The blocks of PackedColumns: columns, and what their steps are a multiple of.
inline constexpr int64_t kBlockColumns = 4 * kVectorColumns;
inline constexpr int64_t kPaddedSteps = 16;

// Numbers of one row of x that are multiplied by one instruction: 1, 2 of
// bf16, 4 of int8.
int64_t NumbersPerStep(WeightType type);
// Bytes of `in` numbers as they are multiplied.
int64_t RowBytes(WeightType type, int64_t in);

// Rows whose sums have room in the registers, beside the weights of a step: up
// to so many go over the weights once.
inline constexpr int64_t kRowsTogether = 6;

// Of any type.
inline constexpr int64_t kMostFewRows = 64;

// The most rows for which MultiplyFewRows is no slower than oneDNN; 0 where the
// CPU cannot run it.
int64_t MostFewRows(WeightType type);

// W, [in, out], in blocks of kBlockColumns columns. A block is [steps] of
// [kBlockColumns][numbers per step], where steps are in / numbers per step,
// rounded up to a multiple of kPaddedSteps; weights beyond `in` are 0.
struct PackedColumns {
  WeightType type = WeightType::kF32;
  int64_t in = 0;  // a multiple of NumbersPerStep
  int64_t out = 0;
  const std::byte* weights = nullptr;
};

// Rows without gaps.
struct FewRows {
  const void* x = nullptr;  // [count, in] of f32, bf16 or u8
  int64_t count = 0;        // 1 to MostFewRows
  void* sums = nullptr;     // [count, out] of f32, of 8-bit products int32
};

// Columns `first` to `last` of the sums. `first` is a multiple of
// kVectorColumns, and `last` too, or it is `out`.
void MultiplyFewRows(const PackedColumns& w, const FewRows& rows, int64_t first,
                     int64_t last);

}  // namespace reprise

#endif  // ENGINE_KERNELS_FEW_ROWS_H_
