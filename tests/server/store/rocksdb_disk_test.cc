// The RocksDB store on a disk that fails, and then works again: commits are
// refused and say why, what is stored can be read, and once the disk works
// nothing that was acknowledged is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <thread>

#include "tests/server/store/disk_store.h"
#include "tests/server/store/store_ledger.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

std::string Session(uint64_t i) { return std::to_string(i % 5); }

// Says what failed, as an error that metrics tell from others.
void ExpectRefusal(const absl::Status& status, DiskFault fault) {
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(IsNoSpace(status), fault == DiskFault::kNoSpace) << status;
  const char* const says = fault == DiskFault::kNoSpace
                               ? "No space left on device"
                               : "Input/output error";
  EXPECT_THAT(std::string(status.message()), HasSubstr(says));
}

struct DiskCase {
  DiskFault fault;
  Durability durability;
};

class DiskFaultTest : public ::testing::TestWithParam<DiskCase> {};

// At each of the first operations of a write, and of what comes after it.
TEST_P(DiskFaultTest, CommitsAreRefusedWhileItLastsAndGoOnAfterIt) {
  const auto [fault, durability] = GetParam();
  for (int64_t k = 1; k <= 6; ++k) {
    SCOPED_TRACE(k);
    StoreDisk disk;
    StoreLedger ledger(30'000);
    auto store = disk.Open(durability);
    for (uint64_t i = 0; i < 10; ++i) {
      ASSERT_TRUE(ledger.PutNext(*store, Session(i)).ok());
    }
    CaptureStderr();
    disk.files->FailFrom(k, fault);
    absl::Status status;
    for (uint64_t i = 0; i < 2000 && status.ok(); ++i) {
      status = ledger.PutNext(*store, Session(i));
      // What fails in the background is seen by a write that comes later.
      if (durability == Durability::kAsync) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }
    ExpectRefusal(status, fault);
    for (uint64_t i = 0; i < 3; ++i) {
      ExpectRefusal(ledger.PutNext(*store, Session(i)), fault);
      ledger.CheckReadable(*store);
    }
    EXPECT_FALSE(store->Delete({"t", "0"}).ok());
    EXPECT_THAT(GetCapturedStderr(), HasSubstr("store cannot write"));
    disk.files->Mend();
    for (uint64_t i = 0; i < 10; ++i) {
      const absl::Status again = ledger.PutNext(*store, Session(i));
      ASSERT_TRUE(again.ok()) << again;
    }
    ledger.Check(*store);
    store.reset();
    ledger.Check(*disk.Open(durability));
  }
}

std::string NameOfDiskCase(const ::testing::TestParamInfo<DiskCase>& info) {
  constexpr const char* kNames[] = {"NoSpace", "IoError", "ShortWrite",
                                    "SyncFails"};
  return std::string(kNames[static_cast<int>(info.param.fault)]) +
         DurabilityName(info.param.durability);
}

INSTANTIATE_TEST_SUITE_P(
    All, DiskFaultTest,
    ::testing::Values(DiskCase{DiskFault::kNoSpace, Durability::kFsync},
                      DiskCase{DiskFault::kIoError, Durability::kFsync},
                      DiskCase{DiskFault::kShortWrite, Durability::kFsync},
                      DiskCase{DiskFault::kSyncFails, Durability::kFsync},
                      DiskCase{DiskFault::kNoSpace, Durability::kAsync},
                      DiskCase{DiskFault::kShortWrite, Durability::kAsync},
                      DiskCase{DiskFault::kSyncFails, Durability::kAsync}),
    NameOfDiskCase);

// All kinds, anywhere: in the log, in flushes and compactions, while the
// database is opened again.
TEST(DiskFaultsTest, AtRandomPlacesNothingAcknowledgedIsLost) {
  uint64_t refused = 0, acknowledged = 0;
  int64_t faults = 0;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    StoreDisk disk;
    StoreLedger ledger(60'000);
    auto store = disk.Open();
    CaptureStderr();  // hundreds of lines
    for (int round = 0; round < 5; ++round) {
      disk.files->FailWithProbability(0.002 * (1 + random() % 10), random());
      for (int i = 0; i < 80; ++i) {
        const absl::Status status = ledger.PutNext(*store, Session(random()));
        if (status.ok()) continue;
        ++refused;
        EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      }
      disk.files->Mend();
      // What failed in the background may be seen by the first write only.
      ledger.PutNext(*store, "0").IgnoreError();
      const absl::Status status = ledger.PutNext(*store, "0");
      EXPECT_TRUE(status.ok()) << status;
      ledger.Check(*store);
    }
    GetCapturedStderr();
    store.reset();
    ledger.Check(*disk.Open());
    faults += disk.files->faults();
    acknowledged += ledger.acknowledged();
  }
  std::printf("%ld faults, %lu puts refused, %lu acknowledged\n",
              static_cast<long>(faults), static_cast<unsigned long>(refused),
              static_cast<unsigned long>(acknowledged));
  EXPECT_GT(refused, 10u);
  EXPECT_GT(acknowledged, 500u);
}

}  // namespace
}  // namespace reprise
