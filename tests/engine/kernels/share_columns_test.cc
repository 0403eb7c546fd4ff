#include "engine/kernels/share_columns.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/parallel.h"
#include "tests/support/teams.h"

namespace reprise::share_columns_test {
namespace {

// Of matrices of all sizes, also fewer groups than threads, every column once.
TEST(ShareColumnsTest, EveryColumnIsComputedOnce) {
  const std::vector<ColumnBytes> matrices = {
      {.columns = 5, .group = 16, .group_bytes = 64},
      {.columns = 1600, .group = 16, .group_bytes = 1 << 16, .rows = 3},
      {.columns = 16, .group = 16, .group_bytes = 1 << 20},
      {.columns = 77, .group = 64, .group_bytes = 1 << 14, .rows = 512},
  };
  for (const int threads : {1, 2, 3, 7}) {
    SetNumThreads(TeamOf(threads));
    for (size_t count = 1; count <= matrices.size(); ++count) {
      Mutex mu;
      std::vector<std::vector<int>> times;
      for (const ColumnBytes& matrix : matrices) {
        times.emplace_back(static_cast<size_t>(matrix.columns));
      }
      ShareColumns(std::span(matrices).first(count),
                   [&](size_t matrix, int64_t first, int64_t last) {
                     const MutexLock lock(mu);
                     EXPECT_EQ(first % matrices[matrix].group, 0);
                     EXPECT_LT(first, last);
                     for (int64_t i = first; i < last; ++i) {
                       ++times[matrix].at(static_cast<size_t>(i));
                     }
                   });
      for (size_t i = 0; i < times.size(); ++i) {
        const std::vector<int> once(times[i].size(), i < count ? 1 : 0);
        EXPECT_EQ(times[i], once) << i << " of " << count << ", " << threads;
      }
    }
  }
  SetNumThreads(1);
}

}  // namespace
}  // namespace reprise::share_columns_test
