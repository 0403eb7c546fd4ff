// The columns of several matrices, shared by the team. A part of linear.cc.
#ifndef ENGINE_KERNELS_SHARE_COLUMNS_H_
#define ENGINE_KERNELS_SHARE_COLUMNS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"

namespace reprise {

struct ColumnBytes {
  int64_t columns = 0;
  int64_t group = 1;        // columns that stay together
  int64_t group_bytes = 0;  // of them
  int64_t rows = 1;         // that are multiplied with them
};

// With so many rows reading the weights is what takes time, with more it is
// multiplying.
inline constexpr int64_t kMostRowsByColumns = 8;

// Calls compute(matrix, first, last) for columns of each matrix, until all
// columns of all are computed; `first` is a multiple of its group. With few
// rows each thread reads the same share of all bytes from one end to the other;
// with more, shares are cut into pieces, which another thread may take. All
// wait for each other once.
void ShareColumns(
    std::span<const ColumnBytes> matrices,
    absl::FunctionRef<void(size_t matrix, int64_t first, int64_t last)>
        compute);

}  // namespace reprise

#endif  // ENGINE_KERNELS_SHARE_COLUMNS_H_
