#include "engine/kernels/share_columns.h"

#include <algorithm>

#include "engine/base/parallel.h"

namespace reprise {
namespace {

int64_t Groups(int64_t columns) {
  return (columns + kColumnGroup - 1) / kColumnGroup;
}

}  // namespace

void ShareColumns(std::span<const ColumnBytes> matrices,
                  absl::FunctionRef<void(size_t, int64_t, int64_t)> compute) {
  int64_t all = 0;
  int64_t work = 0;  // four bytes and a row each
  for (const auto& [columns, bytes, rows] : matrices) {
    all += Groups(columns) * bytes;
    work += Groups(columns) * bytes / 4 * rows;
  }
  // Smaller and smaller shares, taken when a thread has time, cost a tenth
  // more: each begins a stream of reads anew.
  const int64_t parts = NumThreads();
  ForEach(parts, work / parts, [&](int64_t part) {
    int64_t before = 0;  // bytes of the matrices before
    for (size_t i = 0; i < matrices.size(); ++i) {
      const int64_t columns = matrices[i].columns;
      const int64_t bytes = matrices[i].group_bytes;
      // The column that a share ends with is the one that the next begins with.
      const auto column = [&](int64_t share) {
        const int64_t left = std::max<int64_t>(0, all * share / parts - before);
        return std::min((left + bytes - 1) / bytes * kColumnGroup, columns);
      };
      const int64_t first = column(part);
      const int64_t last = column(part + 1);
      before += Groups(columns) * bytes;
      if (first < last) compute(i, first, last);
    }
  });
}

}  // namespace reprise
