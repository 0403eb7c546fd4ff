#include "client/input.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/client/pipe.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

std::vector<std::string> AllLines(Pipe& input) {
  Pipe interrupt;
  LineReader reader(input.read_fd(), interrupt.read_fd());
  std::vector<std::string> lines;
  while (true) {
    const absl::StatusOr<InputLine> line = reader.Next();
    EXPECT_TRUE(line.ok()) << line.status();
    if (!line.ok() || line->kind != InputLine::Kind::kLine) return lines;
    lines.push_back(line->text);
  }
}

TEST(ReadAllTest, ReadsToTheEnd) {
  Pipe pipe;
  pipe.Write("two\nlines");
  pipe.CloseWrite();
  EXPECT_EQ(ReadAll(pipe.read_fd()).value(), "two\nlines");
}

TEST(ReadAllTest, ReportsADescriptorThatCannotBeRead) {
  EXPECT_TRUE(absl::IsUnknown(ReadAll(-1).status()));
}

TEST(ReadAllTest, MakesNoRoomForMoreThanTheLimit) {
  const TempDir dir;
  constexpr size_t kBytes = (size_t{1} << 20) + 1;
  dir.Write("input", std::string(kBytes, 'x'));
  const int fd = open(dir.Path("input").c_str(), O_RDONLY | O_CLOEXEC);
  const absl::StatusOr<std::string> text = ReadAll(fd, kBytes);
  close(fd);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->size(), kBytes);
  EXPECT_EQ(text->capacity(), kBytes);
}

TEST(ReadAllTest, ADeviceIsReadToTheLimit) {
  const int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(
      ReadAll(fd, 1'000'000).status(),
      absl::ResourceExhaustedError("the input is longer than 1000000 bytes"));
  close(fd);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// As under `ulimit -v`: more than there is now, but less than is to be read.
TEST(ReadAllTest, SaysThatThereIsNoMemory) {
  const auto read = [] {
    std::ifstream statm("/proc/self/statm");
    rlim_t pages = 0;
    statm >> pages;
    const rlim_t bytes =
        pages * static_cast<rlim_t>(getpagesize()) + (32 << 20);
    const rlimit limit = {bytes, bytes};
    const int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    if (pages == 0 || setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(2);
    const absl::Status status = ReadAll(fd, size_t{1} << 30).status();
    std::fputs(std::string(status.message()).c_str(), stderr);
    std::_Exit(absl::IsResourceExhausted(status) ? 0 : 1);
  };
  EXPECT_EXIT(read(), testing::ExitedWithCode(0), "there is no memory");
}
#endif

TEST(ReadTextFileTest, NamesTheFileThatItCannotRead) {
  TempDir dir;
  const std::string path = dir.Write("text", "a text\n");
  EXPECT_EQ(ReadTextFile(path).value(), "a text\n");
  EXPECT_EQ(ReadTextFile(path + "x").status(),
            absl::UnknownError("cannot open " + path +
                               "x: No such file or directory"));
  EXPECT_TRUE(absl::IsUnknown(ReadTextFile(dir.path()).status()));
  dir.Write("text", "a\xff");
  EXPECT_TRUE(absl::IsInvalidArgument(ReadTextFile(path).status()));
}

TEST(CheckUtf8Test, NamesTheFirstBadByte) {
  EXPECT_TRUE(CheckUtf8("\xc3\xa9").ok());
  const absl::Status status = CheckUtf8("ab\xff");
  EXPECT_EQ(status, absl::InvalidArgumentError(
                        "the text is not UTF-8: byte 3 of 3 does not belong "
                        "to a character"));
}

TEST(CheckUtf8Test, NamesWhatItLookedAt) {
  EXPECT_EQ(CheckUtf8("\xff", "--stop"),
            absl::InvalidArgumentError("--stop is not UTF-8: byte 1 of 1 does "
                                       "not belong to a character"));
}

TEST(LineReaderTest, SplitsAtNewlinesAndKeepsTheLastPart) {
  Pipe input;
  input.Write("one\n\ntwo\nthree");
  input.CloseWrite();
  EXPECT_EQ(AllLines(input),
            (std::vector<std::string>{"one", "", "two", "three"}));
}

TEST(LineReaderTest, EndsAtOnceWithoutInput) {
  Pipe input;
  input.CloseWrite();
  EXPECT_TRUE(AllLines(input).empty());
}

TEST(LineReaderTest, AnInterruptDropsTheUnfinishedLineOnly) {
  Pipe input;
  Pipe interrupt;
  LineReader reader(input.read_fd(), interrupt.read_fd());
  input.Write("whole\nhal");
  EXPECT_EQ(reader.Next()->text, "whole");
  interrupt.Write("x");
  EXPECT_EQ(reader.Next()->kind, InputLine::Kind::kInterrupted);
  char byte = 0;
  ASSERT_EQ(read(interrupt.read_fd(), &byte, 1), 1);
  input.Write("next\n");
  EXPECT_EQ(reader.Next()->text, "next");
}

}  // namespace
}  // namespace reprise
