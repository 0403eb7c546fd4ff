#include "engine/base/parallel.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/teams.h"

namespace reprise {
namespace {

TEST(ParallelForTest, RunsEveryIndexOnce) {
  for (const int threads : {1, 2}) {
    SetNumThreads(TeamOf(threads));
    for (const int64_t n : {0, 1, 2, 7, 1000}) {
      std::vector<int> runs(n, 0);
      ParallelFor(n, [&](int64_t i) { ++runs[i]; });
      EXPECT_EQ(runs, std::vector<int>(n, 1));
    }
  }
  SetNumThreads(1);
}

}  // namespace
}  // namespace reprise
