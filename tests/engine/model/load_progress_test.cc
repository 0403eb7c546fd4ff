#include "engine/model/load_progress.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/fake_clock.h"

namespace reprise {
namespace {

class LoadMeterTest : public ::testing::Test {
 protected:
  FakeClock clock_;
  std::vector<LoadProgress> told_;
  LoadMeter meter_{[this](const LoadProgress& p) { told_.push_back(p); },
                   clock_};
};

TEST_F(LoadMeterTest, SaysNothingOfWhatTakesLessThanTwoSeconds) {
  meter_.Start(1000);
  for (int i = 0; i < 10; ++i) {
    meter_.Add(100);
    clock_.AdvanceMs(199);
  }
  EXPECT_TRUE(told_.empty());
}

TEST_F(LoadMeterTest, TellsAtMostOnceASecond) {
  meter_.Start(10'000);
  for (int i = 0; i < 100; ++i) {  // five seconds
    clock_.AdvanceMs(50);
    meter_.Add(100);
  }
  ASSERT_EQ(told_.size(), 4u);  // after 2, 3, 4 and 5 seconds
  EXPECT_EQ(told_[0].done_bytes, 4000);
  EXPECT_EQ(told_[0].total_bytes, 10'000);
  EXPECT_EQ(told_[0].percent(), 40);
  EXPECT_DOUBLE_EQ(told_[0].seconds, 2);
  EXPECT_EQ(told_[3].percent(), 100);
}

TEST_F(LoadMeterTest, CountsAnewWhenLoadingStartsOver) {
  meter_.Start(1000);
  meter_.Add(900);
  meter_.Start(1000);
  clock_.AdvanceMs(2000);
  meter_.Add(10);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].percent(), 1);
}

TEST(LoadProgressTest, OfNothingIsComplete) {
  EXPECT_EQ(LoadProgress().percent(), 100);
}

}  // namespace
}  // namespace reprise
