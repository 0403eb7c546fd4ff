// What the `reprise` binary does with states in files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/base/bytes.h"
#include "tests/client/cli_fixture.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

class CliStatesTest : public CliTest {
 protected:
  void SetUp() override {
    v1::Session session;
    session.set_id("s");
    session.set_revision(3);
    session.set_tokens(40);
    server_.sessions.Put(session);
  }

  static std::string Contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // An answer whose Finished has a state.
  static FakeAnswer WithState() {
    FakeAnswer answer = AnswerOf({"answer"});
    v1::SealedSnapshot& state =
        *answer.messages.back().mutable_finished()->mutable_snapshot();
    state.set_data("new state");
    state.mutable_info()->set_revision(2);
    state.mutable_info()->set_sealed_bytes(9);
    return answer;
  }

  const TempDir dir_;
};

TEST_F(CliStatesTest, ExportWritesAFileAndSaysWhatIsInIt) {
  const std::string path = dir_.Path("out.rpse");
  const Outcome outcome =
      Run({"sessions", "export", "s", "--out=" + path, "--encoding=bf16+zstd",
           "--ttl-ms=1000", "--expected-revision=3"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("s is in " + path + ", after "));
  EXPECT_THAT(outcome.out,
              HasSubstr(": revision 3, 40 tokens, 6 B as bf16+zstd\n"));
  EXPECT_EQ(Contents(path), "sealed");
  const v1::ExportSessionRequest request = server_.sessions.last_export();
  EXPECT_EQ(request.seal().elements(), v1::STATE_ELEMENTS_BF16);
  EXPECT_TRUE(request.seal().zstd());
  EXPECT_EQ(request.seal().ttl_ms(), 1000u);
  EXPECT_EQ(request.expected_revision(), 3u);
  const Outcome json =
      Run({"sessions", "export", "s", "--out=" + path, "--json"});
  EXPECT_THAT(json.out, StartsWith("{\"session_id\":\"s\",\"revision\":\"3\""));
}

TEST_F(CliStatesTest, WhatCannotBeExportedLeavesNoFile) {
  const std::string path = dir_.Path("out.rpse");
  const Outcome outcome =
      Run({"sessions", "export", "nobody", "--out=" + path});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, "reprise: NOT_FOUND: no session 'nobody'\n");
  v1::SnapshotChunk chunk;  // without the last one
  chunk.set_data("cut");
  server_.sessions.SetExport({chunk});
  EXPECT_THAT(Run({"sessions", "export", "s", "--out=" + path}).err,
              StartsWith("reprise: DATA_LOSS: "));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(CliStatesTest, ImportSendsTheFileInPieces) {
  const std::string bytes(200'000, 'x');
  const std::string path = dir_.Write("in.rpse", bytes);
  const Outcome outcome =
      Run({"sessions", "import", path, "--id=new", "--ttl-ms=5000"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              StartsWith("new is a session, from " + path + ", after "));
  EXPECT_THAT(outcome.out,
              HasSubstr(": revision 4, 200,000 tokens, 195.3 KiB"));
  EXPECT_EQ(server_.sessions.last_import(), bytes);
  EXPECT_EQ(server_.sessions.last_import_target().ttl_ms(), 5000u);
  EXPECT_EQ(Run({"sessions", "import", path, "--id=new"}).err,
            "reprise: ALREADY_EXISTS: it is taken\n");
  EXPECT_THAT(Run({"sessions", "import", path}).out, StartsWith("made is"));
  EXPECT_THAT(Run({"sessions", "import", dir_.Path("none")}).err,
              HasSubstr("cannot open " + dir_.Path("none")));
}

TEST_F(CliStatesTest, StatesGoThroughPipes) {
  const std::vector<std::string> exporting = {"sessions", "export", "s",
                                              "--out=-"};
  const Outcome exported = Run(exporting);
  EXPECT_EQ(exported.exit_code, 0);
  EXPECT_EQ(exported.out, "sealed");
  EXPECT_THAT(exported.err, StartsWith("s is in stdout, after "));
  EXPECT_FALSE(std::filesystem::exists("-"));
  const Outcome json = Run({"sessions", "export", "s", "--out=-", "--json"});
  EXPECT_EQ(json.exit_code, 1);
  EXPECT_EQ(json.out, "");
  EXPECT_THAT(json.err, HasSubstr("stdout is for the state"));
  Process at_terminal(Arguments(exporting), Process::Streams::kTerminal);
  EXPECT_EQ(at_terminal.Wait(), 1);
  EXPECT_THAT(at_terminal.out(), HasSubstr("stdout is a terminal"));
  // Half a state is no success, as the beginning of a text is.
  v1::SnapshotChunk large;
  large.set_data(std::string(1 << 20, 'x'));
  large.set_crc32c(Crc32c(large.data()));
  server_.sessions.SetExport({large});
  Process piped({"/bin/sh", "-c",
                 std::string(kBinary) + " --server=" + server_.address() +
                     " sessions export s --out=- | head -c 10"},
                Process::Streams::kPipes);
  piped.Wait();
  EXPECT_THAT(piped.err(), HasSubstr("the reader of stdout has gone"));

  const std::string bytes("\0\xff\n", 3);
  const Outcome imported = Run({"sessions", "import", "-", "--id=new"}, bytes);
  EXPECT_EQ(imported.exit_code, 0) << imported.err;
  EXPECT_THAT(imported.out, StartsWith("new is a session, from stdin, after "));
  EXPECT_EQ(server_.sessions.last_import(), bytes);
  for (const std::string option : {"--load=-", "--save=-"}) {
    const Outcome complete = Run({"complete", "a", option});
    EXPECT_EQ(complete.exit_code, 2) << option;
    EXPECT_THAT(complete.err, HasSubstr("name a file")) << option;
  }
}

// The answer is not made for nothing.
TEST_F(CliStatesTest, AStateThatCannotBeWrittenIsKnownBeforeTheRequest) {
  server_.inference.SetAnswer(WithState());
  const std::string path = dir_.Path("none/state");
  const Outcome complete = Run({"complete", "a", "--save=" + path});
  EXPECT_EQ(complete.exit_code, 1);
  EXPECT_EQ(complete.out, "");
  EXPECT_EQ(complete.err,
            "reprise: cannot write " + path + ": No such file or directory\n");
  EXPECT_EQ(server_.inference.last_request().text(), "") << "it was sent";
  const Outcome exported = Run({"sessions", "export", "s", "--out=" + path});
  EXPECT_EQ(exported.exit_code, 1);
  EXPECT_THAT(Run({"chat", "--session=s"}, "/save " + path + "\n").err,
              HasSubstr("cannot write " + path));
  EXPECT_EQ(server_.sessions.last_export().id(), "") << "it was sent";
}

TEST_F(CliStatesTest, CompleteGoesOnFromAFileAndWritesTheNext) {
  server_.inference.SetAnswer(WithState());
  const std::string from = dir_.Write("from", "old state");
  const std::string to = dir_.Path("to");
  const Outcome outcome = Run({"complete", "a", "--load=" + from,
                               "--save=" + to, "--encoding=bf16", "-v"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "answer");
  EXPECT_THAT(outcome.err, HasSubstr("; state of 9 B at revision 2"));
  EXPECT_EQ(Contents(to), "new state");
  const v1::GenerateRequest request = server_.inference.last_request();
  EXPECT_EQ(request.snapshot(), "old state");
  EXPECT_EQ(request.output().snapshot().elements(), v1::STATE_ELEMENTS_BF16);
  // One file for both, and no bytes of it among the lines.
  const Outcome json =
      Run({"complete", "a", "--load=" + to, "--save=" + to, "--json"});
  EXPECT_EQ(json.exit_code, 0) << json.err;
  EXPECT_THAT(json.out, HasSubstr("\"sealed_bytes\":\"9\""));
  EXPECT_THAT(json.out, Not(HasSubstr("\"data\"")));
}

TEST_F(CliStatesTest, WithoutAStateNothingIsWritten) {
  server_.inference.SetAnswer(AnswerOf({"x"}));
  const std::string path = dir_.Write("state", "old");
  const Outcome outcome = Run({"complete", "a", "--save=" + path});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, "reprise: FAILED_PRECONDITION: --save: " + path +
                             " was not written, as the server gave no state: "
                             "the turn added nothing, or was rolled back\n");
  EXPECT_EQ(Contents(path), "old");
}

TEST_F(CliStatesTest, AnInterruptedTurnIsSaidNotToHaveEnded) {
  FakeAnswer answer = AnswerOf({"x"});
  answer.messages.pop_back();
  answer.wait_for_cancel = true;
  server_.inference.SetAnswer(answer);
  const std::string path = dir_.Path("state");
  Process process(Arguments({"complete", "a", "--save=" + path}),
                  Process::Streams::kPipes);
  process.CloseInput();
  ASSERT_TRUE(process.ReadUntil("x"));
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_EQ(process.err(), "reprise: ABORTED: --save: " + path +
                               " was not written, as the turn did not end\n");
  EXPECT_FALSE(std::filesystem::exists(path));
}

// Its record has no state; the session has.
TEST_F(CliStatesTest, TheStateOfARepeatedTurnIsExported) {
  FakeAnswer answer = AnswerOf({"x"}, "s");
  answer.messages.front().mutable_started()->set_repeated(true);
  answer.messages.back().mutable_finished()->set_revision(3);
  server_.inference.SetAnswer(answer);
  const std::string path = dir_.Path("state");
  const std::vector<std::string> command = {
      "complete", "a", "--session=s", "--save=" + path, "--encoding=bf16"};
  const Outcome outcome = Run(command);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(Contents(path), "sealed");
  const v1::ExportSessionRequest request = server_.sessions.last_export();
  EXPECT_EQ(request.id(), "s");
  EXPECT_EQ(request.expected_revision(), 3u);
  EXPECT_EQ(request.seal().elements(), v1::STATE_ELEMENTS_BF16);
  v1::SnapshotChunk cut;
  cut.set_data("cut");
  server_.sessions.SetExport({cut});
  EXPECT_THAT(Run(command).err, StartsWith("reprise: DATA_LOSS: "));
  EXPECT_EQ(Contents(path), "sealed");
}

// The same field has another flag, or none, in another command.
TEST_F(CliStatesTest, RefusalsNameTheFlagOfTheCommand) {
  const std::string path = dir_.Write("in", "x");
  server_.inference.SetAnswer(
      ErrorAnswer(grpc::StatusCode::INVALID_ARGUMENT, "snapshot: is damaged"));
  EXPECT_EQ(Run({"complete", "a", "--load=" + path}).err,
            "reprise: INVALID_ARGUMENT: --load: is damaged\n");
  server_.sessions.SetImportStatus(grpc::Status(
      grpc::StatusCode::INVALID_ARGUMENT, "session_id: '../x' is no id"));
  EXPECT_EQ(Run({"sessions", "import", path, "--id=../x"}).err,
            "reprise: INVALID_ARGUMENT: --id: '../x' is no id\n");
}

TEST_F(CliStatesTest, ChatSavesAndLoads) {
  server_.inference.SetAnswer(AnswerOf({"answer"}, "s"));
  const std::string path = dir_.Path("chat.rpse");
  const Outcome saved =
      Run({"chat", "--session=s"}, "one\n/save " + path + "\n");
  EXPECT_THAT(saved.out, StartsWith("answer\ns is in " + path + ", after "));
  EXPECT_EQ(Contents(path), "sealed");
  const Outcome loaded =
      Run({"chat", "--session=s"}, "/load " + path + "\ntwo\n");
  EXPECT_EQ(loaded.out, "answer\n");
  EXPECT_THAT(loaded.err,
              MatchesRegex("this is session chat-[0-9a-f]+ now, from " + path +
                           ", after [0-9.]+ (us|ms|s): revision 4, 6 tokens, "
                           "6 B\n"));
  EXPECT_THAT(server_.inference.last_request().session_id(),
              StartsWith("chat-"));
  EXPECT_EQ(server_.sessions.last_import(), "sealed");
  EXPECT_EQ(Run({"chat", "--session=s"}, "/load\n").err,
            "reprise: INVALID_ARGUMENT: /load needs a FILE\n");
  EXPECT_EQ(Run({"chat", "--session=s"}, "/save\n").err,
            "reprise: INVALID_ARGUMENT: /save needs a FILE\n");
  EXPECT_THAT(Run({"chat", "--session=s"}, "/load /none/at/all\n").err,
              HasSubstr("cannot open /none/at/all"));
  for (const std::string command : {"/load", "/save"}) {
    EXPECT_EQ(Run({"chat", "--session=s"}, command + " -\n").err,
              "reprise: INVALID_ARGUMENT: " + command + " needs a FILE\n");
  }
}

}  // namespace
}  // namespace reprise
