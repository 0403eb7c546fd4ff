#include "client/input.h"

#include <gtest/gtest.h>

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
