// Command lines that are refused, or are none, before anything is opened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "server/options.h"

namespace reprise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Strings = std::map<std::string, std::string>;

std::variant<ServerOptions, ExitRequest> ParseWith(
    const std::vector<std::string>& args, const Strings& environment = {}) {
  return ParseCommandLine(args, [&](const std::string& name) -> const char* {
    const auto it = environment.find(name);
    return it == environment.end() ? nullptr : it->second.c_str();
  });
}

bool IsAccepted(const std::vector<std::string>& args,
                const Strings& environment = {}) {
  const auto parsed = ParseWith(args, environment);
  return std::holds_alternative<ServerOptions>(parsed);
}

// The text of exit code 2.
std::string Refusal(const std::vector<std::string>& args,
                    const Strings& environment = {}) {
  const auto parsed = ParseWith(args, environment);
  const auto* exit = std::get_if<ExitRequest>(&parsed);
  if (exit == nullptr) return "it was accepted";
  EXPECT_EQ(exit->code, 2);
  return exit->text;
}

TEST(OptionsRefusedTest, HelpAndVersionAreNoVariablesOfTheEnvironment) {
  EXPECT_TRUE(IsAccepted({}, {{"REPRISE_VERSION", "1.2"}}));
  EXPECT_TRUE(IsAccepted({}, {{"REPRISE_HELP", "1"}}));
  EXPECT_FALSE(IsAccepted({"--version"}));
  EXPECT_FALSE(IsAccepted({"--help"}));
}

TEST(OptionsRefusedTest, HelpAndVersionAreNoOptionsOfTheFile) {
  const std::string path =
      ::testing::TempDir() + "refused." + std::to_string(getpid());
  for (const std::string name : {"help", "version"}) {
    std::ofstream(path) << name << " = true\n";
    EXPECT_THAT(Refusal({"--config=" + path}),
                HasSubstr("'" + name + "' is no option"));
  }
  std::filesystem::remove(path);
}

TEST(OptionsRefusedTest, ATildeThatNoShellHasExpandedIsRefused) {
  for (const char* option :
       {"--store=rocksdb:~/x", "--store=rocksdb:~", "--model=~/x",
        "--packed-cache=~/x", "--port-file=~/x", "--seal-keys=~/x"}) {
    const std::string flag(option, std::string(option).find('='));
    EXPECT_THAT(Refusal({option}),
                AllOf(HasSubstr(flag + ": '~"),
                      HasSubstr("begins with ~, which the shell does not "
                                "expand there: write the whole path")));
  }
  EXPECT_THAT(Refusal({}, {{"REPRISE_STORE", "rocksdb:~/x"}}),
              HasSubstr("--store: '~/x' begins with ~"));
  EXPECT_TRUE(IsAccepted({"--store=rocksdb:./~/x"}));
}

TEST(OptionsRefusedTest, AStoreThatNoneCanOpenIsAWrongOption) {
  for (const char* uri : {"foo:bar", "memory:x", "rocksdb:", "redis:host",
                          "redis://host:0", "redis+unix:x"}) {
    EXPECT_THAT(Refusal({std::string("--store=") + uri}),
                AllOf(HasSubstr("reprise-server: --store: "),
                      Not(HasSubstr("store: store"))))
        << uri;
  }
  EXPECT_THAT(
      Refusal({"--store=foo:bar"}),
      HasSubstr("--store: \"foo:bar\" must be memory: or rocksdb:PATH"));
  EXPECT_THAT(Refusal({"--store=redis://me:secret@host:0"}),
              Not(HasSubstr("secret")));
  EXPECT_THAT(Refusal({"--store=memory:", "--durability=async"}),
              HasSubstr("--durability: async cannot be chosen with a store of "
                        "memory:"));
  EXPECT_TRUE(IsAccepted({"--durability=async"}));
  // Whether there is such a file is found out when it is opened.
  EXPECT_TRUE(IsAccepted({"--store=redis://host?user=me&password_file=none"}));
}

TEST(OptionsRefusedTest, TheHelpSaysThatNothingIsProtected) {
  const auto parsed = ParseWith({"--help"});
  EXPECT_THAT(std::get<ExitRequest>(parsed).text,
              AllOf(HasSubstr("no TLS and no authentication"),
                    Not(HasSubstr("0.0.0.0"))));
}

}  // namespace
}  // namespace reprise
