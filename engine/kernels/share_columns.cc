#include "engine/kernels/share_columns.h"

#include <algorithm>

#include "engine/base/parallel.h"

namespace reprise {
namespace {

// Pieces of a thread's share with many rows, of at least so much work each.
constexpr int64_t kMostPieces = 8;
constexpr int64_t kWorkOfPiece = int64_t{1} << 20;

int64_t Groups(const ColumnBytes& matrix) {
  return (matrix.columns + matrix.group - 1) / matrix.group;
}

}  // namespace

void ShareColumns(std::span<const ColumnBytes> matrices,
                  absl::FunctionRef<void(size_t, int64_t, int64_t)> compute) {
  int64_t all = 0;
  int64_t work = 0;  // four bytes and a row each
  for (const ColumnBytes& matrix : matrices) {
    const int64_t bytes = Groups(matrix) * matrix.group_bytes;
    all += bytes;
    work += bytes / 4 * matrix.rows;
  }
  // With few rows, smaller shares cost a tenth more: each begins a stream of
  // reads anew.
  const int64_t threads = NumThreads();
  const bool many = matrices[0].rows > kMostRowsByColumns;
  const int64_t pieces = std::clamp<int64_t>(work / threads / kWorkOfPiece, 1,
                                             many ? kMostPieces : 1);
  const int64_t parts = threads * pieces;
  ForEach(parts, work / parts, [&](int64_t part) {
    int64_t before = 0;  // bytes of the matrices before
    for (size_t i = 0; i < matrices.size(); ++i) {
      const ColumnBytes& matrix = matrices[i];
      // The column that a share ends with is the one that the next begins with.
      const auto column = [&](int64_t share) {
        const int64_t left = std::max<int64_t>(0, all * share / parts - before);
        const int64_t groups =
            (left + matrix.group_bytes - 1) / matrix.group_bytes;
        return std::min(groups * matrix.group, matrix.columns);
      };
      const int64_t first = column(part);
      const int64_t last = column(part + 1);
      before += Groups(matrix) * matrix.group_bytes;
      if (first < last) compute(i, first, last);
    }
  });
}

}  // namespace reprise
