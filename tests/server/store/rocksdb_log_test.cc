#include "server/store/rocksdb_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/support/fake_clock.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

TEST(RocksDbLogTest, AFloodIsCutAndItsEndIsCounted) {
  FakeClock clock;
  RocksDbLog log(clock);
  CaptureStderr();
  for (int i = 0; i < 100; ++i) rocksdb::Warn(&log, "no descriptor %d", i);
  const std::string flood = GetCapturedStderr();
  EXPECT_EQ(std::count(flood.begin(), flood.end(), '\n'), 10);
  EXPECT_THAT(flood, HasSubstr("no descriptor 9"));
  EXPECT_THAT(flood, Not(HasSubstr("no descriptor 10")));

  clock.AdvanceMs(59'999);
  CaptureStderr();
  rocksdb::Error(&log, "still in that minute");
  EXPECT_EQ(GetCapturedStderr(), "");
  clock.AdvanceMs(1);
  CaptureStderr();
  rocksdb::Error(&log, "later");
  rocksdb::Error(&log, "and later");
  const std::string after = GetCapturedStderr();
  EXPECT_EQ(std::count(after.begin(), after.end(), '\n'), 3);
  EXPECT_THAT(after, HasSubstr("lines were left out lines=91"));
  EXPECT_THAT(after, HasSubstr("and later"));
}

TEST(RocksDbLogTest, WhatIsNoWarningIsNotLogged) {
  FakeClock clock;
  RocksDbLog log(clock);
  CaptureStderr();
  rocksdb::Info(&log, "compacting");
  EXPECT_EQ(GetCapturedStderr(), "");
}

}  // namespace
}  // namespace reprise
