// The `reprise` binary against a server in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "tests/client/cli_fixture.h"
#include "tests/client/fake_server.h"
#include "tests/support/json.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(CliTest, CompletePrintsTheTextAndNothingElse) {
  server_.inference.SetAnswer(AnswerOf({"Let ", "there be"}));
  const Outcome outcome = Run({"complete", "God said", "--echo"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "God saidLet there be");
  EXPECT_EQ(outcome.err, "");
}

TEST_F(CliTest, CompleteReadsStdin) {
  server_.inference.SetAnswer(AnswerOf({"x"}));
  EXPECT_EQ(Run({"complete", "-"}, "from\nstdin").exit_code, 0);
  EXPECT_EQ(server_.inference.last_request().text(), "from\nstdin");
}

TEST_F(CliTest, CompleteSaysThatASessionIsNew) {
  server_.inference.SetAnswer(AnswerOf({"x"}, "s"));
  const Outcome outcome = Run({"complete", "a", "--session=s"});
  EXPECT_EQ(outcome.out, "x");
  EXPECT_EQ(outcome.err, "reprise: session s is new\n");
  EXPECT_TRUE(server_.inference.last_request().create_session());
}

TEST_F(CliTest, CompleteSaysThatASessionWasNotKept) {
  server_.inference.SetAnswer(AnswerOf({"x"}, "s"));
  EXPECT_EQ(Run({"complete", "a", "--session=s", "--no-commit"}).err,
            "reprise: nothing was kept of session s\n");
}

TEST_F(CliTest, AFailedTurnMakesNoNewSession) {
  FakeAnswer answer;
  answer.messages = {StartedMessage("s")};
  answer.status = grpc::Status(grpc::StatusCode::INTERNAL, "broke");
  server_.inference.SetAnswer(answer);
  EXPECT_EQ(Run({"complete", "a", "--session=s"}).err,
            "reprise: INTERNAL: broke\n");
}

// The binary with redirections, as a shell makes them.
TEST_F(CliTest, OutputThatCannotBeWrittenIsNoFaultOfTheServer) {
  server_.inference.SetAnswer(AnswerOf({"x"}));
  for (const std::string command : {"complete a", "model", "--help"}) {
    Process process({"/bin/sh", "-c",
                     std::string(kBinary) + " --server=" + server_.address() +
                         " " + command + " >/dev/full"},
                    Process::Streams::kPipes);
    EXPECT_EQ(process.Wait(), 1);
    EXPECT_EQ(process.err(),
              "reprise: cannot write to stdout: No space left on device\n");
  }
}

TEST_F(CliTest, ClosedStreamsDoNotTurnIntoSockets) {
  server_.inference.SetAnswer(AnswerOf({"x"}));
  // Without stdout the answer is lost, and the exit code says so.
  const std::pair<std::string, int> cases[] = {
      {"2>&-", 0}, {"1>&-", 1}, {"<&-", 0}, {"<&- >&- 2>&-", 1}};
  for (const auto& [closed, exit_code] : cases) {
    Process process({"/bin/sh", "-c",
                     std::string(kBinary) + " --server=" + server_.address() +
                         " complete a " + closed},
                    Process::Streams::kPipes);
    EXPECT_EQ(process.Wait(), exit_code) << closed;
    if (closed == "1>&-") {
      EXPECT_EQ(process.err(),
                "reprise: cannot write to stdout: Bad file descriptor\n");
    }
  }
}

// A descriptor that a library had taken in its place would have no end.
TEST_F(CliTest, ClosedStdinIsTheEndOfTheInput) {
  server_.inference.SetAnswer(AnswerOf({"x"}));
  for (const std::string command : {"chat", "complete -", "tokenize -"}) {
    const std::string run = "timeout 20 " + std::string(kBinary) +
                            " --server=" + server_.address() + " " + command;
    Process closed({"/bin/sh", "-c", run + " <&-"}, Process::Streams::kPipes);
    Process empty({"/bin/sh", "-c", run + " </dev/null"},
                  Process::Streams::kPipes);
    EXPECT_EQ(closed.Wait(), empty.Wait()) << command;
    EXPECT_EQ(closed.out(), empty.out()) << command;
    EXPECT_EQ(closed.err(), empty.err()) << command;
  }
}

TEST_F(CliTest, BrokenUtf8IsToldByUsAlone) {
  const Outcome outcome = Run({"complete", "a", "--stop=\xff"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, StartsWith("reprise: --stop is not UTF-8"));
  EXPECT_EQ(Run({"chat"}, "/fork \xff\n").err,
            "reprise: INVALID_ARGUMENT: the name is not UTF-8: byte 1 of 1 "
            "does not belong to a character\n");
}

TEST_F(CliTest, VerboseSummarisesInAPipeToo) {
  server_.inference.SetAnswer(AnswerOf({"x", "y"}));
  const Outcome outcome = Run({"complete", "a", "-v"});
  EXPECT_EQ(outcome.out, "xy");
  EXPECT_THAT(outcome.err, StartsWith("2 tokens, first after "));
}

TEST_F(CliTest, JsonErrorsAreForMachines) {
  server_.inference.SetAnswer(
      ErrorAnswer(grpc::StatusCode::ABORTED, "busy \"s\""));
  const Outcome outcome = Run({"complete", "a", "--json"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  const auto error = JsonOf(outcome.err)["error"];
  EXPECT_EQ(error["code"], "ABORTED");
  EXPECT_EQ(error["message"], "busy \"s\"");
}

TEST_F(CliTest, ErrorsNameCodeAndText) {
  const Outcome outcome = Run({"sessions", "show", "nobody"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, "reprise: NOT_FOUND: no session 'nobody'\n");
}

TEST_F(CliTest, RefusesTextThatIsNotUtf8) {
  const Outcome outcome = Run({"complete", "a\xff"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("not UTF-8: byte 2 of 2"));
}

TEST_F(CliTest, WrongArgumentsExitWithTwo) {
  const Outcome outcome = Run({"complete", "a", "--max-tokens=many"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, StartsWith("reprise: "));
}

TEST_F(CliTest, SaysHowToStartAServer) {
  Process process({kBinary, "--server=127.0.0.1:1", "model"},
                  Process::Streams::kPipes);
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.err(), HasSubstr("no server at 127.0.0.1:1"));
  EXPECT_THAT(process.err(), HasSubstr("reprise-server --listen=127.0.0.1:1"));
}

TEST_F(CliTest, GoesOnAtTheNextServerAndSaysSo) {
  const FakeAnswer whole = AnswerOf({"Let ", "there be"});
  FakeAnswer cut = whole;
  cut.messages.resize(2);
  cut.status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining");
  server_.inference.SetAnswer(cut);
  FakeServer second;
  second.inference.SetAnswer(whole);
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(
        arguments.begin(),
        {kBinary, "--server=" + server_.address() + "," + second.address()});
    Process process(arguments, Process::Streams::kPipes);
    const int exit_code = process.Wait();
    return Outcome{exit_code, process.out(), process.err()};
  };
  const std::string notice = "draining; continued on " + second.address();
  const Outcome text = run({"complete", "a"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_EQ(text.out, "Let there be");
  EXPECT_EQ(text.err, "reprise: " + notice + "\n");
  const Outcome json = run({"complete", "a", "--json"});
  EXPECT_EQ(std::count(json.out.begin(), json.out.end(), '\n'), 4);
  EXPECT_EQ(json.err, "{\"notice\":\"" + notice + "\"}\n");
  const Outcome one = run({"complete", "a", "--retry-timeout-ms=0"});
  EXPECT_EQ(one.exit_code, 1);
  EXPECT_EQ(one.out, "Let ");
  EXPECT_EQ(one.err, "reprise: UNAVAILABLE: draining\n");
}

TEST_F(CliTest, ErrorsNameTheFlag) {
  server_.inference.SetAnswer(ErrorAnswer(grpc::StatusCode::INVALID_ARGUMENT,
                                          "sampling.temperature: 3 is big"));
  EXPECT_EQ(Run({"complete", "a"}).err,
            "reprise: INVALID_ARGUMENT: --temperature: 3 is big\n");
  EXPECT_THAT(Run({"complete", "a", "--json"}).err,
              HasSubstr("\"sampling.temperature: 3 is big\""));
}

TEST_F(CliTest, InterruptEndsTheCallAndKeepsWhatWasShown) {
  FakeAnswer answer = AnswerOf({"shown"});
  answer.messages.pop_back();
  answer.wait_for_cancel = true;
  server_.inference.SetAnswer(answer);
  Process process(Arguments({"complete", "a"}), Process::Streams::kPipes);
  ASSERT_TRUE(process.ReadUntil("shown"));
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait(), 130);
  EXPECT_EQ(process.out(), "shown");
  EXPECT_EQ(process.err(), "");
}

TEST_F(CliTest, AClosedPipeEndsQuietly) {
  FakeAnswer answer = AnswerOf({"y\n"});
  answer.messages.pop_back();
  answer.endless = true;
  server_.inference.SetAnswer(answer);
  Process process(Arguments({"complete", "a"}), Process::Streams::kPipes);
  ASSERT_TRUE(process.ReadUntil("y\ny\n"));
  process.CloseOutput();
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_EQ(process.err(), "");
}

TEST_F(CliTest, SessionsListPagesThroughAll) {
  for (const char* id : {"a", "b", "c"}) {
    v1::Session session;
    session.set_id(id);
    session.set_revision(7);
    session.set_tokens(1'200);
    session.set_place(v1::SESSION_PLACE_SUSPENDED);
    server_.sessions.Put(session);
  }
  const Outcome text = Run({"sessions", "list"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, StartsWith("ID  REVISION  TOKENS  PLACE "));
  EXPECT_THAT(text.out, HasSubstr("\nc          7   1,200  suspended "));
  EXPECT_EQ(text.err, "3 sessions\n");
  const Outcome json = Run({"sessions", "list", "--page-size=2", "--json"});
  EXPECT_EQ(std::count(json.out.begin(), json.out.end(), '\n'), 2);
  EXPECT_EQ(json.err, "");
}

TEST_F(CliTest, TokenizeShowsIdsAndPieces) {
  const Outcome outcome = Run({"tokenize", "a\n"});
  EXPECT_EQ(outcome.out, "ID  TOKEN\n97  \"a\"\n10  \"\\n\"\n");
  EXPECT_EQ(outcome.err, "2 tokens\n");
  // Protobuf JSON writes bytes as base64.
  EXPECT_EQ(Run({"tokenize", "a", "--json"}).out,
            "{\"ids\":[97],\"pieces\":[\"YQ==\"]}\n");
}

// "role: content; ..." of a request.
std::string Show(const v1::Messages& messages) {
  std::string shown;
  for (const v1::Message& message : messages.messages()) {
    shown += message.role() + ": " + message.content() + "; ";
  }
  return shown;
}

TEST_F(CliTest, CompleteAndTokenizeSendMessagesOfAFileOrStdin) {
  server_.inference.SetAnswer(AnswerOf({"x"}));
  const std::string json =
      R"([{"role":"system","content":"S"},{"content":"a\nb","role":"user"}])";
  TempDir dir;
  dir.Write("talk.json", json);
  const std::string file = "--messages=" + dir.path() + "/talk.json";
  EXPECT_EQ(Run({"complete", file}).out, "x");
  EXPECT_EQ(Show(server_.inference.last_request().messages()),
            "system: S; user: a\nb; ");
  server_.inference.SetAnswer(AnswerOf({"y"}));
  EXPECT_EQ(Run({"complete", "--messages=-", "--session=s"}, "[]").out, "y");
  EXPECT_TRUE(server_.inference.last_request().has_messages());
  EXPECT_EQ(server_.inference.last_request().session_id(), "s");
  EXPECT_EQ(Run({"tokenize", file}).exit_code, 0);
  EXPECT_EQ(Show(server_.inference.last_tokenize().messages()),
            "system: S; user: a\nb; ");
  dir.Write("talk.json", "[1]");
  EXPECT_EQ(Run({"complete", file}).err,
            "reprise: INVALID_ARGUMENT: " + dir.path() +
                "/talk.json: [0]: a message is an object with a role and a "
                "content, not number\n");
  EXPECT_THAT(Run({"complete", file + "x"}).err, HasSubstr("cannot open"));
}

constexpr char kGlaCase[] = REPRISE_TESTDATA "/golden/hybrid_gla_fullattn";

TEST_F(CliTest, InspectNeedsNoServer) {
  Process process({kBinary, "--server=127.0.0.1:1", "inspect", kGlaCase},
                  Process::Streams::kPipes);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_EQ(process.err(), "");
  EXPECT_THAT(process.out(), HasSubstr("family:              gla\n"));
  EXPECT_THAT(process.out(),
              HasSubstr("state of a session:  8.0 KiB, and 256 B for each "
                        "token\n"));
  EXPECT_THAT(process.out(),
              HasSubstr("     1  softmax_attention + gated_ffn       "));
  EXPECT_THAT(process.out(), HasSubstr("    1,024  264.0 KiB    1.5 MiB\n"));
  EXPECT_THAT(process.out(),
              HasSubstr("The state is smaller from token 7 on.\n"));
}

TEST_F(CliTest, InspectSpeaksJson) {
  const auto json = JsonOf(Run({"inspect", kGlaCase, "--json"}).out);
  EXPECT_EQ(json["num_parameters"], 155'200);
  EXPECT_EQ(json["layers"]["period"][1]["mixers"][0], "softmax_attention");
  EXPECT_EQ(json["layers"]["period"][1]["state"][0]["growth"], "context");
  EXPECT_EQ(json["memory"][3]["tokens"], 1'048'576);
  EXPECT_EQ(json["smaller_from_tokens"], 7);
}

TEST_F(CliTest, InspectSaysWhatItCannotRead) {
  const Outcome outcome = Run({"inspect", "/nowhere"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, StartsWith("reprise: NOT_FOUND: "));
  EXPECT_EQ(Run({"inspect"}).exit_code, 2);
}

TEST_F(CliTest, ScoreShowsTheFigures) {
  const Outcome outcome = Run({"score", "abcde"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out,
            "tokens:          5, of which 4 scored, 4 bytes\n"
            "nats per token:  0.6931\n"
            "bits per byte:   1.0000\n"
            "perplexity:      2.0000\n");
  EXPECT_EQ(outcome.err, "");
}

TEST_F(CliTest, ScoreReadsFilesAndStdin) {
  EXPECT_EQ(Run({"score", "-"}, "from\nstdin").exit_code, 0);
  EXPECT_EQ(server_.inference.last_score().text(), "from\nstdin");
  TempDir dir;
  dir.Write("text", "from a file");
  dir.Write("broken", "a\xFF");
  EXPECT_EQ(Run({"score", "--file=" + dir.path() + "/text"}).exit_code, 0);
  EXPECT_EQ(server_.inference.last_score().text(), "from a file");
  const Outcome missing = Run({"score", "--file=" + dir.path() + "/none"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_EQ(missing.err, "reprise: cannot open " + dir.path() +
                             "/none: No such file or directory\n");
  EXPECT_THAT(Run({"score", "--file=" + dir.path() + "/broken"}).err,
              HasSubstr("/broken is not UTF-8: byte 2 of 2"));
  EXPECT_THAT(Run({"score", "--file=" + dir.path()}).err,
              HasSubstr("cannot read the input: Is a directory"));
}

TEST_F(CliTest, ScoreWithJsonIsALinePerMessage) {
  const Outcome outcome = Run({"score", "abc", "--json", "--logprobs=2"});
  EXPECT_EQ(server_.inference.last_score().logprobs(), 2u);
  const size_t end = outcome.out.find('\n');
  const auto first = JsonOf(outcome.out.substr(0, end));
  EXPECT_EQ(first["tokens"][0]["chosen"]["token_id"], 98);
  EXPECT_EQ(first["totals"]["scored_tokens"], "1");
  const auto last = JsonOf(outcome.out.substr(end + 1));
  EXPECT_EQ(last["totals"]["text_tokens"], "3");
}

TEST_F(CliTest, ScoreTellsTheServersError) {
  const Outcome outcome = Run({"score", "a"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "reprise: INVALID_ARGUMENT: text: too short\n");
}

TEST_F(CliTest, ModelShowsWhatIsServed) {
  const Outcome outcome = Run({"model"});
  EXPECT_THAT(outcome.out, HasSubstr("family:              linear_attn\n"));
  EXPECT_THAT(outcome.out, HasSubstr("1,234,567"));
  EXPECT_EQ(JsonOf(Run({"model", "--json"}).out)["name"], "fake");
}

TEST_F(CliTest, ChatInAPipeIsATurnPerLine) {
  server_.inference.SetAnswer(AnswerOf({"answer"}, "s"));
  const Outcome outcome =
      Run({"chat", "--session=s"}, "one\n//two\n/quit\nthree\n");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "answer\nanswer\n");
  EXPECT_EQ(outcome.err, "");
  const v1::GenerateRequest request = server_.inference.last_request();
  EXPECT_EQ(request.text(), "/two\n");
  EXPECT_EQ(request.session_id(), "s");
  EXPECT_TRUE(request.create_session());
  EXPECT_EQ(request.stopping().max_new_tokens(), 200u);
}

TEST_F(CliTest, ChatSendsMessagesIfThereIsATemplate) {
  server_.inference.SetChatTemplate("chat_template.jinja");
  server_.inference.SetAnswer(AnswerOf({"answer"}, "s"));
  const Outcome outcome = Run({"chat", "--session=s"}, "one\n//two\n");
  EXPECT_EQ(outcome.out, "answer\nanswer\n");
  EXPECT_EQ(outcome.err, "");
  const v1::GenerateRequest request = server_.inference.last_request();
  EXPECT_EQ(Show(request.messages()), "user: /two; ");
  EXPECT_TRUE(request.create_session());
}

TEST_F(CliTest, ChatBeginsANewSessionWithTheSystemMessage) {
  server_.inference.SetChatTemplate("chat_template.jinja");
  server_.inference.SetAnswer(AnswerOf({"x"}, "s"));
  // The fake server keeps no turn, so both lines are a beginning.
  Run({"chat", "--session=s", "--system=S"}, "one\ntwo\n");
  EXPECT_EQ(Show(server_.inference.last_request().messages()),
            "system: S; user: two; ");
  v1::Session session;
  session.set_id("s");
  server_.sessions.Put(session);  // made, and not used yet
  Run({"chat", "--session=s", "--system=S"}, "one\n");
  EXPECT_EQ(Show(server_.inference.last_request().messages()),
            "system: S; user: one; ");
  session.set_tokens(7);
  server_.sessions.Put(session);
  const Outcome outcome = Run({"chat", "--session=s", "--system=S"}, "one\n");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err,
            "reprise: INVALID_ARGUMENT: --system: session s has begun already, "
            "and that is where a system message stands\n");
}

TEST_F(CliTest, ASystemMessageNeedsATemplate) {
  EXPECT_EQ(Run({"chat", "--system=S"}, "one\n").err,
            "reprise: FAILED_PRECONDITION: --system needs a chat template: "
            "none\n");
}

TEST_F(CliTest, ChatDrawsASessionIfNoneIsNamed) {
  server_.inference.SetAnswer(AnswerOf({"x"}));
  EXPECT_EQ(Run({"chat"}, "hi\n").exit_code, 0);
  EXPECT_THAT(server_.inference.last_request().session_id(),
              StartsWith("chat-"));
}

TEST_F(CliTest, ChatInAPipeStopsAtAnError) {
  server_.inference.SetAnswer(ErrorAnswer(grpc::StatusCode::ABORTED, "busy"));
  const Outcome outcome = Run({"chat"}, "one\ntwo\n");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, "reprise: ABORTED: busy\n");
}

TEST_F(CliTest, ChatAtATerminalTalksStopsAndLeaves) {
  v1::Session session;
  session.set_id("s");
  server_.sessions.Put(session);
  FakeAnswer answer = AnswerOf({"half\x1b[2J"}, "s");
  answer.messages.pop_back();
  answer.wait_for_cancel = true;
  server_.inference.SetAnswer(answer);
  Process process(Arguments({"chat", "--session=s"}),
                  Process::Streams::kTerminal);
  ASSERT_TRUE(process.ReadUntil("/help")) << process.out();
  ASSERT_TRUE(process.ReadUntil("> "));
  process.Write("hello\n");
  ASSERT_TRUE(process.ReadUntil("half"));
  process.Write("\x03");  // Ctrl-C stops the answer
  ASSERT_TRUE(process.ReadUntil("interrupted")) << process.out();
  ASSERT_TRUE(process.ReadUntil("> "));
  process.Write("not sent\x03");  // and at the prompt drops the line
  ASSERT_TRUE(process.ReadUntil("Ctrl-D or /quit leaves"));
  ASSERT_TRUE(process.ReadUntil("> "));
  process.Write("/nonsense\n");
  ASSERT_TRUE(process.ReadUntil("no such command: /nonsense"));
  ASSERT_TRUE(process.ReadUntil("> "));
  process.Write("/suspend\n");
  ASSERT_TRUE(process.ReadUntil("s is suspended"));
  ASSERT_TRUE(process.ReadUntil("> "));
  process.Write("\x04");  // Ctrl-D
  EXPECT_TRUE(process.ReadUntil("reprise chat --session=s"));
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(process.out(), Not(HasSubstr("\x1b[2J")));
  EXPECT_EQ(server_.inference.last_request().text(), "hello\n");
}

TEST_F(CliTest, CompleteAtATerminalEndsWithASummary) {
  server_.inference.SetAnswer(AnswerOf({"x"}));
  Process process(Arguments({"complete", "a"}), Process::Streams::kTerminal);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(process.out(), HasSubstr("x\r\n"));
  EXPECT_THAT(process.out(), HasSubstr("1 token, first after "));
  EXPECT_THAT(process.out(), EndsWith("\r\n"));
}

}  // namespace
}  // namespace reprise
