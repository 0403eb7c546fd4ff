#include "client/state_file.h"

#include <fcntl.h>
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

TEST(StateFileTest, WritesToWhatIsNoFile) {
  const TempDir dir;
  const std::string pipe = dir.Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  EXPECT_TRUE(WriteStateFile(pipe, "bytes").ok());
  char read_bytes[8];
  EXPECT_EQ(read(reader, read_bytes, sizeof(read_bytes)), 5);
  close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  // By a link, so that a failure leaves the machine its device.
  const std::string full = dir.Path("full");
  std::filesystem::create_symlink("/dev/full", full);
  EXPECT_THAT(std::string(WriteStateFile(full, "bytes").message()),
              HasSubstr("No space left"));
  EXPECT_TRUE(std::filesystem::is_symlink(full));
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

// Of all that is asked before, nothing is changed.
TEST(StateFileTest, IsAskedBeforeWhetherItCouldBeWritten) {
  const TempDir dir;
  const std::string old = dir.Write("old", "old");
  EXPECT_TRUE(CheckStateFile(old).ok());
  EXPECT_TRUE(CheckStateFile(dir.Path("new")).ok());
  EXPECT_EQ(*ReadStateFile(old), "old");
  EXPECT_EQ(FilesIn(dir), 1);
  const std::string pipe = dir.Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(CheckStateFile(pipe).ok());  // without a reader
  EXPECT_TRUE(CheckStateFile("/dev/null").ok());
  for (const std::string& path :
       {dir.Path("none/state"), dir.path(), old + "/below",
        dir.Path(std::string(300, 'n')), std::string("/proc/state")}) {
    const absl::Status status = CheckStateFile(path);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("cannot write " + path + ": "));
  }
}

TEST(StateFileTest, OneThatIsTooLargeIsRefusedUnread) {
  const TempDir dir;
  const std::string path = dir.Write("state", "");
  constexpr off_t kBytes = off_t{1} << 40;
  ASSERT_EQ(truncate(path.c_str(), kBytes), 0) << "no sparse files here";
  const absl::Status status = ReadStateFile(path).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(path + " has 1099511627776 bytes"));
}

}  // namespace
}  // namespace reprise
