#include "client/state_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;

int FilesIn(const TempDir& dir) {
  int files = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(dir.path())) {
    ++files;
  }
  return files;
}

TEST(StateFileTest, ComesBackAsItWasAndIsItsOwnersAlone) {
  const TempDir dir;
  const std::string path = dir.Path("state");
  const std::string bytes("\0\xff\n\x80", 4);
  const mode_t before = umask(0);
  ASSERT_TRUE(WriteStateFile(path, bytes).ok());
  umask(before);
  EXPECT_EQ(*ReadStateFile(path), bytes);
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(FilesIn(dir), 1);
}

TEST(StateFileTest, ReplacesAnOldOneOnlyWhenAllIsWritten) {
  const TempDir dir;
  const std::string path = dir.Write("state", "old");
  chmod(path.c_str(), 0644);
  ASSERT_TRUE(WriteStateFile(path, "new").ok());
  EXPECT_EQ(*ReadStateFile(path), "new");
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  // A folder is in the way: nothing is left of the attempt.
  std::filesystem::create_directories(dir.Path("folder/full"));
  const absl::Status status = WriteStateFile(dir.Path("folder"), "new");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("cannot write " + dir.Path("folder")));
  EXPECT_EQ(FilesIn(dir), 2);
}

TEST(StateFileTest, WhatCannotBeReadIsNamed) {
  const TempDir dir;
  const absl::Status missing = ReadStateFile(dir.Path("none")).status();
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr("cannot open " + dir.Path("none")));
  EXPECT_THAT(std::string(ReadStateFile(dir.path()).status().message()),
              HasSubstr(dir.path()));
  EXPECT_FALSE(WriteStateFile(dir.Path("none/state"), "x").ok());
}

}  // namespace
}  // namespace reprise
