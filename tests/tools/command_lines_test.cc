// How the tools and scripts answer to their command lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <string>

#include "tests/support/scrape.h"

namespace reprise {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kBin = REPRISE_BINARY_DIR "/";
const std::string kScripts = REPRISE_SOURCE_DIR "/scripts/";
const std::string kTools = REPRISE_SOURCE_DIR "/tools/";

int ExitCode(const CommandResult& result) { return WEXITSTATUS(result.status); }

TEST(ToolsTest, WrongArgumentsAreUsageErrors) {
  for (const std::string tool :
       {"reprise-bench", "reprise-golden", "reprise-snapshots"}) {
    for (const std::string arguments :
         {"--nonsense", "--threads=many --model=x x", "--threads= x",
          "--weights=f64 x", ""}) {
      const CommandResult result = RunCommand(kBin + tool + " " + arguments);
      EXPECT_EQ(ExitCode(result), 2) << arguments;
      EXPECT_THAT(result.output, StartsWith(tool + ": "));
      EXPECT_THAT(result.output, EndsWith("\nTry " + tool + " --help\n"));
    }
  }
}

TEST(ToolsTest, HelpTeachesAndFailsWhereItCannotBeWritten) {
  for (const std::string tool :
       {"reprise-bench", "reprise-golden", "reprise-snapshots"}) {
    const CommandResult help = RunCommand(kBin + tool + " --help");
    EXPECT_EQ(ExitCode(help), 0);
    EXPECT_THAT(help.output, HasSubstr("--weights"));
    for (const std::string nowhere : {">/dev/full", ">&-"}) {
      const CommandResult lost =
          RunCommand("{ " + kBin + tool + " --help " + nowhere + "; }");
      EXPECT_EQ(ExitCode(lost), 1) << nowhere;
      EXPECT_THAT(lost.output, StartsWith(tool + ": cannot write to stdout: "));
    }
  }
}

TEST(ScriptsTest, HelpTeachesAndWrongArgumentsAreUsageErrors) {
  for (const std::string name :
       {"first-token", "latency", "packages", "quickstart", "test"}) {
    const CommandResult help = RunCommand(kScripts + name + " --help");
    EXPECT_EQ(ExitCode(help), 0) << name;
    EXPECT_THAT(help.output, HasSubstr("scripts/" + name));
    EXPECT_GE(std::count(help.output.begin(), help.output.end(), '\n'), 5);
    const CommandResult wrong = RunCommand(kScripts + name + " --nonsense");
    EXPECT_EQ(ExitCode(wrong), 2) << name;
    EXPECT_THAT(wrong.output,
                HasSubstr(name + ": unknown argument '--nonsense'"));
  }
}

TEST(ScriptsTest, LatencyTellsNoTokensFromNoMetrics) {
  const std::string latency = " | " + kScripts + "latency";
  const CommandResult none = RunCommand(
      "echo 'reprise_time_to_first_token_seconds_count{model=\"m\"} 0'" +
      latency);
  EXPECT_EQ(ExitCode(none), 0);
  EXPECT_THAT(none.output, StartsWith("none yet: "));
  const CommandResult other = RunCommand("echo go_info 1" + latency);
  EXPECT_EQ(ExitCode(other), 1);
  EXPECT_THAT(other.output, StartsWith("latency: no metrics of a Reprise"));
}

// As on a machine without the packages: -S takes Python's own modules only.
TEST(ScriptsTest, WhatIsNotInstalledOrBuiltIsNamed) {
  for (const std::string name : {"train_embedded_model", "write_golden"}) {
    const CommandResult result =
        RunCommand("python3 -B -S -E " + kTools + name + ".py");
    EXPECT_EQ(ExitCode(result), 1) << name;
    EXPECT_THAT(result.output, StartsWith(name + ": Python has no module "));
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1);
  }
  const CommandResult quality = RunCommand(
      "python3 -B " + kTools +
      "quality.py --bin=/nowhere " REPRISE_SOURCE_DIR "/models/embedded");
  EXPECT_EQ(ExitCode(quality), 1);
  EXPECT_THAT(quality.output,
              StartsWith("quality: no /nowhere/reprise-server: build it"));
}

}  // namespace
}  // namespace reprise
