#include "client/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ParsedCommandLine Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "reprise");
  return ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
}

CommandLine ParseOk(const std::vector<const char*>& arguments) {
  ParsedCommandLine parsed = Parse(arguments);
  EXPECT_TRUE(parsed.command) << parsed.err;
  return parsed.command.value_or(CommandLine());
}

void ExpectUsageError(const std::vector<const char*>& arguments,
                      const std::string& text) {
  const ParsedCommandLine parsed = Parse(arguments);
  EXPECT_FALSE(parsed.command);
  EXPECT_EQ(parsed.exit_code, kUsageExitCode);
  EXPECT_EQ(parsed.out, "");
  EXPECT_THAT(parsed.err, HasSubstr(text));
}

class CommandLineTest : public ::testing::Test {
 protected:
  void SetUp() override { unsetenv("REPRISE_SERVER"); }
};

TEST_F(CommandLineTest, TheFixedNamesForScriptsWork) {
  const CommandLine line =
      ParseOk({"--server=h:1", "complete", "In the", "--session=s",
               "--max-tokens=9", "--temperature=0", "--seed=7", "--json"});
  EXPECT_EQ(line.command, Command::kComplete);
  EXPECT_EQ(line.server, "h:1");
  EXPECT_EQ(line.text, "In the");
  EXPECT_TRUE(line.json);
  EXPECT_EQ(line.request.session_id(), "s");
  EXPECT_TRUE(line.request.create_session());
  EXPECT_EQ(line.request.stopping().max_new_tokens(), 9u);
  EXPECT_TRUE(line.request.sampling().has_temperature());
  EXPECT_EQ(line.request.sampling().temperature(), 0);
  EXPECT_EQ(line.request.sampling().seed(), 7u);
}

TEST_F(CommandLineTest, StatesInFilesAreNamed) {
  const CommandLine complete =
      ParseOk({"complete", "a", "--load=x", "--save=y", "--encoding=f32+zstd"});
  EXPECT_EQ(complete.load_file, "x");
  EXPECT_EQ(complete.save_file, "y");
  EXPECT_TRUE(complete.request.output().snapshot().zstd());
  EXPECT_EQ(complete.request.output().snapshot().elements(),
            v1::STATE_ELEMENTS_F32);
  const CommandLine exported = ParseOk({"sessions", "export", "s"});
  EXPECT_EQ(exported.command, Command::kSessionsExport);
  EXPECT_EQ(exported.export_session.id(), "s");
  EXPECT_EQ(exported.state_file, "");
  EXPECT_FALSE(exported.export_session.has_seal());
  const CommandLine imported = ParseOk({"sessions", "import", "f", "--id=t"});
  EXPECT_EQ(imported.command, Command::kSessionsImport);
  EXPECT_EQ(imported.state_file, "f");
  EXPECT_EQ(imported.import_session.session_id(), "t");
  ExpectUsageError({"complete", "a", "--load=x", "--session=s"}, "--session");
  ExpectUsageError({"complete", "a", "--save=x", "--n=2"}, "--save");
  ExpectUsageError({"complete", "a", "--encoding=bf16"}, "--save");
  ExpectUsageError({"sessions", "export", "s", "--encoding=f16"},
                   "'f16' is not f32, bf16, f32+zstd or bf16+zstd");
  ExpectUsageError({"sessions", "import"}, "FILE");
}

TEST_F(CommandLineTest, GlobalOptionsStandBeforeOrAfterTheCommand) {
  for (const auto& arguments : std::vector<std::vector<const char*>>{
           {"--json", "-v", "--server", "h:1", "sessions", "list"},
           {"sessions", "--json", "-v", "--server", "h:1", "list"},
           {"sessions", "list", "--json", "-v", "--server", "h:1"}}) {
    const CommandLine line = ParseOk(arguments);
    EXPECT_EQ(line.command, Command::kSessionsList);
    EXPECT_EQ(line.server, "h:1");
    EXPECT_TRUE(line.json);
    EXPECT_TRUE(line.verbose);
  }
}

TEST_F(CommandLineTest, TheServerComesFromTheEnvironmentUnlessNamed) {
  EXPECT_EQ(ParseOk({"model"}).server, "127.0.0.1:8980");
  setenv("REPRISE_SERVER", "e:2", /*replace=*/1);
  EXPECT_EQ(ParseOk({"model"}).server, "e:2");
  EXPECT_EQ(ParseOk({"model", "--server=h:1"}).server, "h:1");
}

TEST_F(CommandLineTest, NothingGivenLeavesTheRequestToTheServersDefaults) {
  const CommandLine line = ParseOk({"complete", "x"});
  EXPECT_EQ(line.request.ByteSizeLong(), 0u) << line.request.DebugString();
}

TEST_F(CommandLineTest, FillsEverySamplingField) {
  const v1::SamplingOptions sampling =
      ParseOk({"complete", "x", "--top-k=3", "--top-p=0.5", "--min-p=0.125",
               "--typical-p=0.25", "--repetition-penalty=1.5",
               "--presence-penalty=-1", "--frequency-penalty=-0.5",
               "--penalty-decay=0.75", "--penalty-last-n=0",
               "--logit-bias=5:-100", "--logit-bias=6:1.5",
               "--seed=18446744073709551615"})
          .request.sampling();
  EXPECT_EQ(sampling.top_k(), 3u);
  EXPECT_EQ(sampling.top_p(), 0.5f);
  EXPECT_EQ(sampling.min_p(), 0.125f);
  EXPECT_EQ(sampling.typical_p(), 0.25f);
  EXPECT_EQ(sampling.repetition_penalty(), 1.5f);
  EXPECT_EQ(sampling.presence_penalty(), -1);
  EXPECT_EQ(sampling.frequency_penalty(), -0.5f);
  EXPECT_EQ(sampling.penalty_decay(), 0.75f);
  EXPECT_TRUE(sampling.has_penalty_last_n());
  EXPECT_EQ(sampling.penalty_last_n(), 0u);
  EXPECT_EQ(sampling.logit_bias().at(5), -100);
  EXPECT_EQ(sampling.logit_bias().at(6), 1.5f);
  EXPECT_EQ(sampling.seed(), 18446744073709551615u);
}

TEST_F(CommandLineTest, FillsStoppingOutputAndCommit) {
  const v1::GenerateRequest request = ParseOk({"complete",
                                               "--stop",
                                               "a",
                                               "--stop=[b]",
                                               "x",
                                               "--stop-token=4",
                                               "--min-tokens=2",
                                               "--ignore-eos",
                                               "--include-stop",
                                               "--time-limit-ms=50",
                                               "--json",
                                               "--logprobs=0",
                                               "--token-ids",
                                               "--prompt-logprobs",
                                               "--n=3",
                                               "--session=s",
                                               "--no-commit",
                                               "--expected-revision=0",
                                               "--roll-back-on-cancel",
                                               "--special-tokens",
                                               "--request-id=r"})
                                          .request;
  EXPECT_THAT(request.stopping().stop(), ElementsAre("a", "[b]"));
  EXPECT_THAT(request.stopping().stop_token_ids(), ElementsAre(4));
  EXPECT_EQ(request.stopping().min_new_tokens(), 2u);
  EXPECT_TRUE(request.stopping().ignore_eos());
  EXPECT_TRUE(request.stopping().include_stop());
  EXPECT_EQ(request.stopping().time_limit_ms(), 50u);
  EXPECT_TRUE(request.output().has_logprobs());
  EXPECT_EQ(request.output().logprobs(), 0u);
  EXPECT_TRUE(request.output().token_ids());
  EXPECT_TRUE(request.output().prompt_logprobs());
  EXPECT_EQ(request.n(), 3u);
  EXPECT_EQ(request.commit(), v1::COMMIT_POLICY_NEVER);
  EXPECT_TRUE(request.has_expected_revision());
  EXPECT_EQ(request.on_cancel(), v1::ON_CANCEL_ROLL_BACK);
  EXPECT_TRUE(request.allow_special_tokens());
  EXPECT_EQ(request.request_id(), "r");
}

TEST_F(CommandLineTest, TakesTextsAsTheyAre) {
  for (const char* text : {"", "-", "chat", "[a,b]", "{}", "a=b", " x ",
                           "\"quoted\"", "two\nlines", "\xff"}) {
    EXPECT_EQ(ParseOk({"complete", text}).text, text);
    EXPECT_EQ(ParseOk({"tokenize", text}).text, text);
  }
  EXPECT_EQ(ParseOk({"complete", "--", "--help"}).text, "--help");
}

TEST_F(CommandLineTest, ReadsMessagesAndTheSystemMessage) {
  EXPECT_EQ(ParseOk({"complete", "--messages=-"}).messages_file, "-");
  EXPECT_EQ(ParseOk({"tokenize", "--messages", "f"}).messages_file, "f");
  EXPECT_EQ(ParseOk({"chat", "--system=Be brief."}).system, "Be brief.");
}

TEST_F(CommandLineTest, ReadsTheSessionCommands) {
  EXPECT_THAT(ParseOk({"sessions", "delete", "a", "b"}).ids,
              ElementsAre("a", "b"));
  EXPECT_EQ(ParseOk({"sessions", "suspend", "a"}).command,
            Command::kSessionsSuspend);
  EXPECT_EQ(ParseOk({"sessions", "resume", "a"}).command,
            Command::kSessionsResume);
  EXPECT_EQ(ParseOk({"sessions", "show", "a"}).command, Command::kSessionsShow);
  const CommandLine fork = ParseOk({"sessions", "fork", "a", "b"});
  EXPECT_EQ(fork.fork.id(), "a");
  EXPECT_EQ(fork.fork.new_id(), "b");
  EXPECT_FALSE(ParseOk({"sessions", "fork", "a"}).fork.has_new_id());
  const CommandLine rewind =
      ParseOk({"sessions", "rewind", "a", "7", "--expected-revision=9"});
  EXPECT_EQ(rewind.command, Command::kSessionsRewind);
  EXPECT_EQ(rewind.rewind.id(), "a");
  EXPECT_EQ(rewind.rewind.revision(), 7u);
  EXPECT_EQ(rewind.rewind.expected_revision(), 9u);
  EXPECT_FALSE(
      ParseOk({"sessions", "rewind", "a", "0"}).rewind.has_expected_revision());
  ExpectUsageError({"sessions", "rewind", "a"}, "REVISION is required");
  ExpectUsageError({"sessions", "rewind", "a", "-1"}, "REVISION");
  ExpectUsageError({"sessions", "rewind", "a", "last"},
                   "REVISION: 'last' is not a whole number from 0 to ");
}

TEST_F(CommandLineTest, ReadsThePresetCommands) {
  EXPECT_EQ(ParseOk({"presets", "list"}).command, Command::kPresetsList);
  const CommandLine save = ParseOk({"presets", "save", "p", "s"});
  EXPECT_EQ(save.command, Command::kPresetsSave);
  EXPECT_EQ(save.save_preset.name(), "p");
  EXPECT_EQ(save.save_preset.session_id(), "s");
  EXPECT_THAT(ParseOk({"presets", "delete", "a", "b"}).ids,
              ElementsAre("a", "b"));
  EXPECT_EQ(ParseOk({"complete", "x", "--preset=p"}).request.preset(), "p");
  const CommandLine chat = ParseOk({"chat", "--preset=p", "--session=s"});
  EXPECT_EQ(chat.preset, "p");
  EXPECT_EQ(chat.request.session_id(), "s");
  ExpectUsageError({"complete", "x", "--preset=p", "--session=s"}, "excludes");
  ExpectUsageError({"presets", "save", "p"}, "ID is required");
  ExpectUsageError({"presets", "delete", "\xff"}, "NAME is not UTF-8");
}

TEST_F(CommandLineTest, RefusesNumbersThatAreNoneAndSaysTheRange) {
  const std::string seed = " is not a whole number from 0 to 18446744073709551";
  const std::string max = " is not a whole number from 0 to 4294967295";
  const std::string token = " is not a whole number from 0 to 2147483647";
  const std::vector<std::pair<const char*, std::string>> cases = {
      {"--seed=-1", "--seed: '-1'" + seed},
      {"--seed=18446744073709551616", "'18446744073709551616'" + seed},
      {"--seed=1x", "'1x'" + seed},
      {"--seed=0x10", "'0x10'" + seed},
      {"--max-tokens=4294967296", "--max-tokens: '4294967296'" + max},
      {"--max-tokens=-1", "'-1'" + max},
      {"--max-tokens=1.5", "'1.5'" + max},
      {"--temperature=hot", "--temperature: 'hot' is not a number"},
      {"--logit-bias=5", "--logit-bias: '5' is not ID:X"},
      {"--logit-bias=x:1", "'x:1' is not ID:X"},
      {"--stop-token=2147483648", "--stop-token: '2147483648'" + token},
      {"--connect-timeout-ms=0", "'0' is not a whole number from 1 to 3600000"},
  };
  for (const auto& [argument, text] : cases) {
    ExpectUsageError({"complete", "x", argument}, text);
  }
  for (const char* argument : {"--page-size=0", "--page-size=1001"}) {
    ExpectUsageError({"sessions", "list", argument}, "from 1 to 1000");
  }
  EXPECT_EQ(ParseOk({"complete", "x", "--seed=010"}).request.sampling().seed(),
            10u);
}

TEST_F(CommandLineTest, AnOptionDoesNotEatTheNextArgument) {
  ExpectUsageError({"complete", "--session=", "Hi", "there"}, "--session: ");
  ExpectUsageError({"complete", "Hi", "--session=", "--json"}, "--session: ");
  ExpectUsageError({"complete", "Hi", "--session", "--json"}, "--session: ");
  ExpectUsageError({"complete", "Hi", "--stop", "-v"}, "--stop: ");
  ExpectUsageError({"--server", "--json", "model"}, "--server: ");
  ExpectUsageError({"--server=localhost", "model"},
                   "--server: 'localhost' is not HOST:PORT: the port is "
                   "missing");
  ExpectUsageError({"--server=a:1,,b:2", "model"}, "--server: '' is not");
  EXPECT_EQ(ParseOk({"model", "--server=a:1,b:2"}).server, "a:1,b:2");
  ExpectUsageError({"sessions", "list", "--page-size="}, "--page-size: ");
  ExpectUsageError({"complete", "Hi", "--session"}, "--session: ");
  EXPECT_EQ(ParseOk({"complete", "--", "--session="}).text, "--session=");
  const v1::GenerateRequest request =
      ParseOk({"complete", "x", "--stop=--json", "--presence-penalty", "-1"})
          .request;
  EXPECT_THAT(request.stopping().stop(), ElementsAre("--json"));
  EXPECT_EQ(request.sampling().presence_penalty(), -1);
}

TEST_F(CommandLineTest, RefusesOptionsThatAreNotUtf8ByName) {
  const std::string text = " is not UTF-8: byte 1 of 1";
  ExpectUsageError({"complete", "x", "--stop=\xff"}, "--stop" + text);
  ExpectUsageError({"complete", "x", "--request-id=\xff"},
                   "--request-id" + text);
  ExpectUsageError({"complete", "x", "--session=\xff"}, "--session" + text);
  ExpectUsageError({"chat", "--session=\xff"}, "--session" + text);
  ExpectUsageError({"sessions", "show", "\xff"}, "ID" + text);
  ExpectUsageError({"sessions", "fork", "\xff"}, "ID" + text);
  ExpectUsageError({"sessions", "fork", "a", "\xff"}, "NEW_ID" + text);
  ExpectUsageError({"sessions", "rewind", "\xff", "1"}, "ID" + text);
}

TEST_F(CommandLineTest, WhatIsNoCommandIsNamedAndTheCommandsListed) {
  const std::string list =
      "the commands are complete, chat, sessions, presets, score, "
      "tokenize, inspect, bench, model";
  ExpectUsageError({"bogus"}, "'bogus' is no command; " + list);
  ExpectUsageError({"--json", "bogus", "x"}, "'bogus' is no command; ");
  ExpectUsageError({"--verbose"}, "a command is required; " + list);
  ExpectUsageError({"--bogus"}, "no such option: --bogus");
  ExpectUsageError(
      {"sessions", "bogus"},
      "'bogus' is no sessions command; the commands are list, "
      "show, suspend, resume, fork, rewind, export, import, delete");
}

TEST_F(CommandLineTest, WithJsonAUsageErrorIsOneLine) {
  for (const auto& arguments : std::vector<std::vector<const char*>>{
           {"complete", "x", "--json", "--seed=x"},
           {"complete", "--json"},
           {"--json"},
           {"--json", "bogus"},
           {"complete", "x", "--json", "--nonsense"},
           {"complete", "x", "--json", "--session="},
           {"complete", "x", "--json", "--stop=\xff"},
           {"complete", "x", "--json", "--echo"}}) {
    ExpectUsageError(arguments,
                     "{\"error\":{\"code\":\"INVALID_ARGUMENT\",\"message\":");
    const std::string line = Parse(arguments).err;
    EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
  }
}

TEST_F(CommandLineTest, ReadsTheScoreCommand) {
  const ParsedCommandLine text = Parse({"score", "a", "--json", "--logprobs=3",
                                        "--special-tokens", "--request-id=r"});
  ASSERT_TRUE(text.command) << text.err;
  EXPECT_EQ(text.command->command, Command::kScore);
  EXPECT_EQ(text.command->text, "a");
  EXPECT_EQ(text.command->score.logprobs(), 3u);
  EXPECT_TRUE(text.command->score.allow_special_tokens());
  EXPECT_EQ(text.command->score.request_id(), "r");
  const ParsedCommandLine file = Parse({"score", "--file=b.txt"});
  ASSERT_TRUE(file.command) << file.err;
  EXPECT_EQ(file.command->file, "b.txt");
}

TEST_F(CommandLineTest, RefusesWrongUsage) {
  ExpectUsageError({}, "Usage:");
  ExpectUsageError({"complete"},
                   "TEXT (- reads stdin) or --messages is required");
  ExpectUsageError({"tokenize"},
                   "TEXT (- reads stdin) or --messages is required");
  ExpectUsageError({"complete", "a", "--messages=b"}, "--messages");
  ExpectUsageError({"complete", "--messages=b", "--echo"}, "--echo");
  ExpectUsageError({"complete", "a", "--system=b"}, "--system");
  ExpectUsageError({"chat", "--system=\xff"}, "--system is not UTF-8");
  ExpectUsageError({"complete", "a", "b"}, "not expected: b");
  ExpectUsageError({"complete", "a", "--nonsense"}, "--nonsense");
  ExpectUsageError({"sessions"}, "sessions command is required");
  ExpectUsageError({"complete", "a", "--logprobs=1"}, "--json");
  ExpectUsageError({"complete", "a", "--echo", "--json"}, "--echo");
  ExpectUsageError({"complete", "a", "--no-commit"}, "--session");
  ExpectUsageError({"model", "--connect-timeout-ms=0"}, "timeout");
  ExpectUsageError({"score"}, "TEXT (- reads stdin) or --file is required");
  ExpectUsageError({"score", "a", "--file=b"}, "--file");
  ExpectUsageError({"score", "a", "--logprobs=1"}, "--json");
}

TEST_F(CommandLineTest, HelpAndVersionAreNotErrors) {
  for (const auto& arguments :
       std::vector<std::vector<const char*>>{{"--help"},
                                             {"complete", "--help"},
                                             {"chat", "-h"},
                                             {"sessions", "--help"},
                                             {"sessions", "list", "--help"},
                                             {"score", "--help"},
                                             {"tokenize", "--help"},
                                             {"model", "--help"},
                                             {"--version"}}) {
    const ParsedCommandLine parsed = Parse(arguments);
    EXPECT_FALSE(parsed.command);
    EXPECT_EQ(parsed.exit_code, 0);
    EXPECT_NE(parsed.out, "");
    EXPECT_EQ(parsed.err, "");
  }
}

TEST_F(CommandLineTest, HelpSaysWhatTheServerTakes) {
  const std::string help = Parse({"complete", "--help"}).out;
  for (const char* text :
       {"that sum up to X, over 0 to 1\n", "0 to\n", "below 1 [0]",
        "used tokens rarer, over 0 to 10 [1.0]", "per token, over 0 to 1 [1.0]",
        "the last N tokens, 0: none, at most\n",
        "optional ones that are set (\"revision\", \"seed\")",
        "log at level debug", "keeps what it had sent"}) {
    EXPECT_THAT(help, HasSubstr(text));
  }
  EXPECT_THAT(Parse({"chat", "--help"}).out,
              HasSubstr("keeps what it had sent"));
  EXPECT_THAT(Parse({"--help"}).out,
              HasSubstr("1 an error of the server (which checks most values"));
}

}  // namespace
}  // namespace reprise
