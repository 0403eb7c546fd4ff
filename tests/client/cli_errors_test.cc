// What `reprise` says where something is wrong, was stopped, or cannot be
// told by the user alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/client/cli_fixture.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

using CliErrorsTest = CliTest;

void PutSession(FakeServer& server, const std::string& id, uint64_t revision) {
  v1::Session session;
  session.set_id(id);
  session.set_revision(revision);
  server.sessions.Put(session);
}

// An answer that ends when the client cancels.
FakeAnswer OpenAnswer(const std::string& session) {
  FakeAnswer answer = AnswerOf({"shown"}, session);
  answer.messages.pop_back();
  answer.wait_for_cancel = true;
  return answer;
}

TEST_F(CliErrorsTest, ATurnThatWasRefusedIsNotSummedUp) {
  server_.inference.SetAnswer(
      ErrorAnswer(grpc::StatusCode::INVALID_ARGUMENT, "n: 99 is too many"));
  EXPECT_EQ(Run({"complete", "a", "--verbose"}).err,
            "reprise: INVALID_ARGUMENT: --n: 99 is too many\n");
  EXPECT_EQ(Run({"chat", "--verbose"}, "a\n").err,
            "reprise: INVALID_ARGUMENT: n: 99 is too many\n");
}

TEST_F(CliErrorsTest, AnInterruptSaysWhatBecameOfTheSession) {
  const struct {
    uint64_t left_at;
    std::vector<std::string> flags;
    const char* said;
  } kCases[] = {
      {1, {}, "; interrupted; session s kept as revision 1, new"},
      {1, {"--json"}, "; interrupted; session s kept as revision 1, new"},
      {0, {"--roll-back-on-cancel"}, "; nothing was kept of session s"},
  };
  for (const auto& [left_at, flags, said] : kCases) {
    PutSession(server_, "s", left_at);
    server_.inference.SetAnswer(OpenAnswer("s"));
    std::vector<std::string> arguments = {"complete", "a", "--session=s", "-v"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    Process process(Arguments(arguments), Process::Streams::kPipes);
    process.CloseInput();
    ASSERT_TRUE(process.ReadUntil("shown"));
    process.Signal(SIGINT);
    EXPECT_EQ(process.Wait(), 130);
    EXPECT_THAT(process.err(), HasSubstr(said));
  }
}

// A new session is there once its first turn is committed, which takes a while.
TEST_F(CliErrorsTest, AnInterruptWaitsForTheCommitOfANewSession) {
  server_.inference.SetAnswer(OpenAnswer("late"));
  Process process(Arguments({"complete", "a", "--session=late"}),
                  Process::Streams::kPipes);
  process.CloseInput();
  ASSERT_TRUE(process.ReadUntil("shown"));
  process.Signal(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  PutSession(server_, "late", 1);
  EXPECT_EQ(process.Wait(), 130);
  EXPECT_EQ(process.err(), "reprise: session late is new\n");
}

TEST_F(CliErrorsTest, OfSeveralOneThatFailsDoesNotKeepTheOthersFromBeingDone) {
  PutSession(server_, "a", 1);
  PutSession(server_, "b", 1);
  const Outcome shown = Run({"sessions", "show", "no", "a"});
  EXPECT_EQ(shown.exit_code, 1);
  EXPECT_EQ(shown.err, "reprise: NOT_FOUND: no session 'no'\n");
  EXPECT_THAT(shown.out, HasSubstr("session:   a\n"));
  const Outcome suspended = Run({"sessions", "suspend", "a", "no"});
  EXPECT_EQ(suspended.exit_code, 1);
  EXPECT_THAT(suspended.out, HasSubstr("a is suspended"));
  const Outcome deleted = Run({"sessions", "delete", "x", "a", "y", "b"});
  EXPECT_EQ(deleted.exit_code, 1);
  EXPECT_EQ(deleted.out, "a is deleted\nb is deleted\n");
  EXPECT_EQ(deleted.err,
            "reprise: NOT_FOUND: no session 'x'\n"
            "reprise: NOT_FOUND: no session 'y'\n");
  PutSession(server_, "a", 1);
  ASSERT_EQ(Run({"presets", "save", "p", "a"}).exit_code, 0);
  const Outcome preset = Run({"presets", "delete", "no", "p"});
  EXPECT_EQ(preset.exit_code, 1);
  EXPECT_EQ(preset.out, "preset p is deleted\n");
  EXPECT_THAT(preset.err, HasSubstr("NOT_FOUND"));
}

TEST_F(CliErrorsTest, ChatInAPipeTellsANameThatNobodyGave) {
  FakeAnswer answer = AnswerOf({"x"}, "s");
  answer.messages.back().mutable_finished()->set_revision(1);
  server_.inference.SetAnswer(answer);
  EXPECT_THAT(Run({"chat"}, "hi\n").err,
              MatchesRegex(
                  "go on later with: reprise chat --session=chat-[0-9a-f]+\n"));
  EXPECT_EQ(Run({"chat", "--session=s"}, "hi\n").err, "");
  EXPECT_EQ(Run({"chat", "--json"}, "hi\n").err, "");
  EXPECT_EQ(Run({"chat"}, "").err, "");
}

TEST_F(CliErrorsTest, ScoreTakesAnEmptyTextAndAFileThatIsStdin) {
  EXPECT_EQ(Run({"score", "--file=-"}, "some text").exit_code, 0);
  EXPECT_EQ(server_.inference.last_score().text(), "some text");
  EXPECT_THAT(Run({"score", "--file=-"}, "\xff").err, HasSubstr("not UTF-8"));
  EXPECT_THAT(Run({"score", "--file=/tmp"}).err,
              HasSubstr("reprise: /tmp: cannot read the input: Is a dir"));
  // What is wrong with it, the server says.
  EXPECT_THAT(Run({"score", ""}).err, Not(HasSubstr("is required")));
}

TEST_F(CliErrorsTest, ATextThatMayHaveBeenMeantForStdinIsMissed) {
  EXPECT_THAT(Run({"complete"}, "text").err,
              HasSubstr("TEXT (- reads stdin) or --messages is required"));
}

TEST(CliInspectTest, AServerThatIsNoneIsNoMatterOfInspect) {
  setenv("REPRISE_SERVER", "foo", 1);
  Process inspect({kBinary, "inspect", "/tmp/none"}, Process::Streams::kPipes);
  EXPECT_EQ(inspect.Wait(), 1);
  Process model({kBinary, "model"}, Process::Streams::kPipes);
  EXPECT_EQ(model.Wait(), 2);
  unsetenv("REPRISE_SERVER");
  EXPECT_THAT(inspect.err(),
              AllOf(HasSubstr("/tmp/none"), Not(HasSubstr("--server"))));
}

// A seal's header, up to the key's id, and what lies behind it.
std::string SealedWith(const std::string& key_id) {
  std::string sealed("RPSE\1\0\0\0", 8);
  sealed.resize(68, 'x');
  sealed += std::string({static_cast<char>(key_id.size()), 0, 0, 0}) + key_id;
  return sealed + "rest";
}

TEST_F(CliErrorsTest, AStateThatNoOtherServerOpensIsSaidToBeOne) {
  const TempDir dir;
  const std::string path = dir.Path("state");
  const std::string said =
      path +
      " opens until this server ends, and on no other: it was started without "
      "--seal-keys";
  FakeAnswer answer = AnswerOf({"x"});
  v1::SealedSnapshot& state =
      *answer.messages.back().mutable_finished()->mutable_snapshot();
  state.set_data(SealedWith(".until-exit-0011"));
  server_.inference.SetAnswer(answer);
  EXPECT_EQ(Run({"complete", "a", "--save=" + path}).err,
            "reprise: " + said + "\n");
  EXPECT_EQ(Run({"complete", "a", "--save=" + path, "--json"}).err,
            "{\"notice\":\"" + said + "\"}\n");
  state.set_data(SealedWith("2026-11"));
  server_.inference.SetAnswer(answer);
  EXPECT_EQ(Run({"complete", "a", "--save=" + path}).err, "");
}

}  // namespace
}  // namespace reprise
