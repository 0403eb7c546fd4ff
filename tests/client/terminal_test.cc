#include "client/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>

#include "tests/client/pipe.h"

namespace reprise {
namespace {

constexpr char kEscape[] = "a\x1b[2Jb";
constexpr char kDisarmed[] = "a\xef\xbf\xbd[2Jb";

class TerminalTest : public ::testing::Test {
 protected:
  TerminalOptions Options(bool is_terminal) {
    return {.out_fd = out_.write_fd(),
            .err_fd = err_.write_fd(),
            .out_is_terminal = is_terminal,
            .err_is_terminal = is_terminal,
            .colour = is_terminal};
  }

  Pipe out_;
  Pipe err_;
};

TEST_F(TerminalTest, APipeGetsTheBytesAsTheyAre) {
  Terminal terminal(Options(/*is_terminal=*/false));
  terminal.Print(kEscape);
  terminal.Note("note");
  terminal.Error("error");
  EXPECT_EQ(out_.Drain(), kEscape);
  EXPECT_EQ(err_.Drain(), "note\nerror\n");
}

TEST_F(TerminalTest, ATerminalGetsNoControlCharactersOfOthers) {
  Terminal terminal(Options(/*is_terminal=*/true));
  terminal.Print(kEscape);
  terminal.Print("\n");
  terminal.Error(kEscape);
  EXPECT_EQ(out_.Drain(), std::string(kDisarmed) + "\n");
  EXPECT_EQ(err_.Drain(), std::string(kDisarmed) + "\n");
}

TEST_F(TerminalTest, DimsNotesOnATerminal) {
  Terminal terminal(Options(/*is_terminal=*/true));
  terminal.Note("note");
  EXPECT_EQ(err_.Drain(), "\x1b[2mnote\x1b[0m\n");
}

TEST_F(TerminalTest, NotesOnATerminalBeginOnANewLine) {
  Terminal terminal(Options(/*is_terminal=*/true));
  terminal.Print("text");
  terminal.Note("note");
  terminal.Note("note");
  EXPECT_EQ(out_.Drain(), "text\n");
}

TEST_F(TerminalTest, EndLineAddsANewlineOnlyWhereOneIsMissing) {
  Terminal terminal(Options(/*is_terminal=*/false));
  terminal.EndLine();
  terminal.Print("a");
  terminal.EndLine();
  terminal.Print("b\n");
  terminal.EndLine();
  EXPECT_EQ(out_.Drain(), "a\nb\n");
}

TEST_F(TerminalTest, AClosedPipeIsNoErrorButIsSeen) {
  signal(SIGPIPE, SIG_IGN);
  Terminal terminal(Options(/*is_terminal=*/false));
  out_.CloseRead();
  EXPECT_FALSE(terminal.out_closed());
  terminal.Print("text");
  EXPECT_TRUE(terminal.out_closed());
  EXPECT_TRUE(terminal.status().ok());
}

TEST_F(TerminalTest, AFullDiskIsAnError) {
  const int full = open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  TerminalOptions options = Options(/*is_terminal=*/false);
  options.out_fd = full;
  Terminal terminal(options);
  terminal.Print("text");
  EXPECT_FALSE(terminal.out_closed());
  EXPECT_EQ(
      terminal.status(),
      absl::UnknownError("cannot write to stdout: No space left on device"));
  close(full);
}

TEST_F(TerminalTest, TheSpinnerIsForTerminalsAndCleansUp) {
  { Spinner spinner(Terminal(Options(/*is_terminal=*/false))); }
  {
    Spinner spinner(Terminal(Options(/*is_terminal=*/true)));
    spinner.Stop();
  }
  // However often it turned: frames of one column, then a space over the bar.
  const std::string drawn = err_.Drain();
  ASSERT_GE(drawn.size(), 2u);
  EXPECT_EQ(drawn.substr(drawn.size() - 2), " \b");
  for (size_t i = 1; i < drawn.size(); i += 2) EXPECT_EQ(drawn[i], '\b');
}

TEST_F(TerminalTest, ProgressIsWrittenOverAndForTerminals) {
  Terminal pipe(Options(/*is_terminal=*/false));
  pipe.Progress("1%");
  Terminal terminal(Options(/*is_terminal=*/true));
  terminal.Progress("");
  terminal.Progress("10 of 20");
  terminal.Progress("done");
  terminal.Progress("");
  // Dimmed; what is left of a longer line is blanked.
  EXPECT_EQ(err_.Drain(),
            "\x1b[2m10 of 20\x1b[0m\r"
            "\x1b[2mdone    \x1b[0m\r"
            "\x1b[2m    \x1b[0m\r");
}

TEST(StandardTerminalTest, NoColorAndDumbTerminalsMeanNoColour) {
  setenv("NO_COLOR", "1", /*replace=*/1);
  EXPECT_FALSE(StandardTerminal().colour);
  unsetenv("NO_COLOR");
  setenv("TERM", "dumb", /*replace=*/1);
  EXPECT_FALSE(StandardTerminal().colour);
}

}  // namespace
}  // namespace reprise
