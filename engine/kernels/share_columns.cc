#include "engine/kernels/share_columns.h"

#include <algorithm>

#include "engine/base/parallel.h"

namespace reprise {
namespace {

// Pieces of a thread's share with many rows, of at least so much work each.
constexpr int64_t kMostPieces = 8;
constexpr int64_t kWorkOfPiece = int64_t{1} << 20;

}  // namespace

void ShareColumns(std::span<const ColumnBytes> matrices,
                  absl::FunctionRef<void(size_t, int64_t, int64_t)> compute) {
  // Columns that stay together. With many rows the kernels want whole blocks.
  const bool many = matrices[0].rows > kMostRowsByColumns;
  const int64_t together = many ? kBlockColumns : kColumnGroup;
  const auto groups = [together](const ColumnBytes& matrix) {
    return (matrix.columns + together - 1) / together;
  };
  const auto bytes_of_group = [together](const ColumnBytes& matrix) {
    return matrix.group_bytes * (together / kColumnGroup);
  };
  int64_t all = 0;
  int64_t work = 0;  // four bytes and a row each
  for (const ColumnBytes& matrix : matrices) {
    const int64_t bytes = groups(matrix) * bytes_of_group(matrix);
    all += bytes;
    work += bytes / 4 * matrix.rows;
  }
  // With few rows, smaller shares cost a tenth more: each begins a stream of
  // reads anew.
  const int64_t threads = NumThreads();
  const int64_t pieces = std::clamp<int64_t>(work / threads / kWorkOfPiece, 1,
                                             many ? kMostPieces : 1);
  const int64_t parts = threads * pieces;
  ForEach(parts, work / parts, [&](int64_t part) {
    int64_t before = 0;  // bytes of the matrices before
    for (size_t i = 0; i < matrices.size(); ++i) {
      const int64_t columns = matrices[i].columns;
      const int64_t bytes = bytes_of_group(matrices[i]);
      // The column that a share ends with is the one that the next begins with.
      const auto column = [&](int64_t share) {
        const int64_t left = std::max<int64_t>(0, all * share / parts - before);
        return std::min((left + bytes - 1) / bytes * together, columns);
      };
      const int64_t first = column(part);
      const int64_t last = column(part + 1);
      before += groups(matrices[i]) * bytes;
      if (first < last) compute(i, first, last);
    }
  });
}

}  // namespace reprise
