#include "engine/base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/support/teams.h"

namespace reprise {
namespace {

TEST(ParallelForTest, RunsEveryIndexOnce) {
  for (const int threads : {1, 2, 3, 70}) {
    SetNumThreads(TeamOf(threads));
    for (const int64_t n : {0, 1, 2, 7, 1000}) {
      std::vector<int> runs(n, 0);
      ParallelFor(n, [&](int64_t i) { ++runs[i]; });
      EXPECT_EQ(runs, std::vector<int>(n, 1));
    }
  }
  SetNumThreads(1);
}

// One thread waits in its first index until all the others are done, so
// another thread must have taken what was left of its run.
TEST(ParallelForTest, AThreadHelpsWithTheRunOfAnother) {
  if (TeamOf(2) < 2) GTEST_SKIP() << "a team of one thread";
  SetNumThreads(2);
  constexpr int64_t kIndices = 16;
  std::atomic<int64_t> done = 0;
  bool helped = false;
  ParallelFor(kIndices, [&](int64_t i) {
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (i == 0 && !helped && std::chrono::steady_clock::now() < deadline) {
      helped = done == kIndices - 1;
      std::this_thread::yield();
    }
    ++done;
  });
  EXPECT_TRUE(helped);
  SetNumThreads(1);
}

}  // namespace
}  // namespace reprise
