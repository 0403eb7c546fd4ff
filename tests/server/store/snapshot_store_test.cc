#include "server/store/snapshot_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;

TEST(OpenStoreTest, ChoosesByScheme) {
  TempDir dir;
  EXPECT_TRUE(OpenStore("memory:").ok());
  EXPECT_FALSE(std::filesystem::exists(dir.Path("db")));
  EXPECT_TRUE(OpenStore("rocksdb:" + dir.Path("db")).ok());
  EXPECT_TRUE(std::filesystem::exists(dir.Path("db") + "/CURRENT"));
}

TEST(OpenStoreTest, RefusesOtherUrisAndNamesThoseThereAre) {
  for (const char* uri : {"", "memory", "rocksdb", "redis:host", ":", "x:y",
                          "Memory:", "memory:x", "rocksdb:"}) {
    const absl::Status status = OpenStore(uri).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << uri;
  }
  EXPECT_THAT(std::string(OpenStore("disk://host").status().message()),
              HasSubstr("\"disk://host\" must be memory: or rocksdb:PATH or "
                        "redis://HOST:PORT or rediss://HOST:PORT or "
                        "redis+unix:PATH"));
}

TEST(NoSpaceErrorTest, IsToldFromOtherErrors) {
  const absl::Status status = NoSpaceError("disk");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(IsNoSpace(status));
  EXPECT_FALSE(IsNoSpace(absl::UnavailableError("no space left: disk")));
  EXPECT_FALSE(IsNoSpace(absl::OkStatus()));
}

}  // namespace
}  // namespace reprise
