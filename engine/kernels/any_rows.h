// Sums of x W for any number of rows, on any CPU, in Highway SIMD with run-time
// dispatch. A part of linear.cc, matmul.cc and pack_weights.cc.
//
// Why: where oneDNN 2.6 has no blocked matmul of a type (f32 before AVX-512, 8
// bits before its VNNI, bf16 before its BF16), the bits of its other ones
// change with the number of rows, 8-bit sums saturate, and bf16 is slow or
// missing.
//
// Exactness: an element is the sum over chunks of kChunkNumbers numbers, in
// order; a chunk's sum begins with zero, and takes one number after the other
// by a fused multiplication and addition (two roundings where the CPU has no
// fused one). Nothing of it depends on other rows or columns. 8-bit numbers are
// multiplied as f32, too: the sum of a chunk is below 2^24, so it is exact.
#ifndef ENGINE_KERNELS_ANY_ROWS_H_
#define ENGINE_KERNELS_ANY_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/linear.h"

namespace reprise {

inline constexpr int64_t kAnyRowsColumns = 16;
inline constexpr int64_t kChunkNumbers = 256;

// Numbers of a column of a block: oneDNN's name for the layout is BA16a16b.
constexpr int64_t PaddedNumbers(int64_t in) { return (in + 15) / 16 * 16; }

// W, [in, out] of f32, bf16 or s8, in blocks of kAnyRowsColumns columns (those
// beyond `out` are 0). A block is [PaddedNumbers(in)] of [kAnyRowsColumns].
struct ColumnBlocks {
  WeightType type = WeightType::kF32;
  int64_t in = 0;
  int64_t out = 0;
  const std::byte* weights = nullptr;
};

// Rows without gaps.
struct AnyRows {
  const void* x = nullptr;  // [count, in] of the type of W
  int64_t count = 0;
  void* sums = nullptr;  // [count, out] of f32, of 8-bit products int32
};

// Columns `first` to `last` of the sums. `first` is a multiple of
// kAnyRowsColumns. Numbers of 8 bits are -127 to 127.
void MultiplyAnyRows(const ColumnBlocks& w, const AnyRows& rows, int64_t first,
                     int64_t last);

}  // namespace reprise

#endif  // ENGINE_KERNELS_ANY_ROWS_H_
