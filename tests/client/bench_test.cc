#include "client/bench.h"

#include <gtest/gtest.h>

namespace reprise {
namespace {

TEST(SpreadOfTest, TellsTheMiddleAndTheEnd) {
  std::vector<double> seconds;
  for (int i = 200; i > 0; --i) seconds.push_back(i);
  const TimeSpread spread = SpreadOf(seconds);
  EXPECT_EQ(spread.count, 200u);
  EXPECT_EQ(spread.median, 100);
  EXPECT_EQ(spread.p99, 198);
  EXPECT_EQ(spread.longest, 200);
  EXPECT_EQ(SpreadOf({3}).median, 3);
  EXPECT_EQ(SpreadOf({3}).p99, 3);
  EXPECT_EQ(SpreadOf({1, 2, 3}).median, 2);
  EXPECT_EQ(SpreadOf({}).count, 0u);
}

}  // namespace
}  // namespace reprise
