// The reprise-server binary, on a real model: how it starts, ends, and what
// survives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/generate_call.h"
#include "tests/support/scrape.h"
#include "tests/support/sealed_calls.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kModel =
    "--model=" REPRISE_TESTDATA "/golden/linear_attn_elu";
constexpr uint32_t kEndless = 60'000;  // tokens, more than any test waits for

std::string RocksDb(const TempDir& dir) {
  return "--store=rocksdb:" + dir.path() + "/sessions";
}

// A stream that is running: its first delta was read.
class RunningStream {
 public:
  RunningStream(const ServerProcess& server, const v1::GenerateRequest& request)
      : stub_(server.NewStub()), reader_(stub_->Generate(&context_, request)) {
    v1::GenerateResponse message;
    while (reader_->Read(&message)) {
      AddMessage(message, completion_);
      if (message.has_delta()) return;
    }
    ADD_FAILURE() << "no delta came";
  }

  Completion ReadToTheEnd() {
    v1::GenerateResponse message;
    while (reader_->Read(&message)) AddMessage(message, completion_);
    completion_.status = reader_->Finish();
    return completion_;
  }

 private:
  std::unique_ptr<v1::Inference::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader_;
  Completion completion_;
};

TEST(MainTest, ServesACompletionAndMetrics) {
  // The label of the metrics is the model's name, whatever the path.
  ServerProcess server({kModel + "/.", "--store=memory:"});
  ASSERT_TRUE(server.AwaitReady());
  const Completion c = Generate(*server.NewStub(), TextRequest("Hello", 20));
  EXPECT_TRUE(c.status.ok()) << c.status.error_message();
  EXPECT_EQ(c.started.prompt_tokens(), 5u);
  EXPECT_EQ(c.token_ids.size(), 20u);
  const std::string scrape = ScrapeMetrics(server.metrics_port());
  EXPECT_EQ(MetricValue(scrape,
                        "reprise_generated_tokens_total{model="
                        "\"linear_attn_elu\"}"),
            20);
  EXPECT_NE(scrape.find("\nreprise_model_info{"), std::string::npos);
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0) << server.Log();
  const std::string log = server.Log();
  EXPECT_THAT(log, AllOf(HasSubstr("ready"), HasSubstr("cpu_isa="),
                         HasSubstr("drained")));
  EXPECT_THAT(log, HasSubstr(" info model loaded model=linear_attn_elu "));
  EXPECT_EQ(log.find(" info model "), log.rfind(" info model "));  // said once
  EXPECT_THAT(log, HasSubstr(" packed_cache=small "));
  if (!HavePromtool()) GTEST_SKIP() << "promtool is not installed";
  ExpectPromtoolAccepts(scrape);
}

TEST(MainTest, RunsUnderItsOwnNameWithWhatLibrariesRead) {
  ServerProcess server({kModel, "--store=memory:"});
  ASSERT_TRUE(server.AwaitReady());
  const std::string proc = "/proc/" + std::to_string(server.pid());
  EXPECT_EQ(ReadFile(proc + "/comm"), "reprise-server\n");
  EXPECT_THAT(ReadFile(proc + "/environ"),
              AllOf(HasSubstr("GOMP_SPINCOUNT=2000"),
                    HasSubstr("GLIBC_TUNABLES=glibc.malloc.hugetlb=1")));
}

TEST(MainTest, DrainLetsAStreamFinish) {
  ServerProcess server({kModel, "--store=memory:"});
  ASSERT_TRUE(server.AwaitReady());
  RunningStream stream(server, TextRequest("Hello", 2000));
  server.Signal(SIGINT);
  const Completion c = stream.ReadToTheEnd();
  EXPECT_TRUE(c.status.ok()) << c.status.error_message();
  EXPECT_EQ(c.token_ids.size(), 2000u);
  EXPECT_EQ(server.Wait(), 0) << server.Log();
}

TEST(MainTest, DrainTimeoutEndsAStreamWithWhatItHas) {
  ServerProcess server({kModel, "--store=memory:", "--drain-timeout=0"});
  ASSERT_TRUE(server.AwaitReady());
  RunningStream stream(server, SessionRequest("s", "Hello", kEndless));
  server.Signal(SIGTERM);
  const Completion c = stream.ReadToTheEnd();
  EXPECT_EQ(c.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  ASSERT_EQ(c.finished.size(), 1u);
  EXPECT_EQ(c.finished[0].reason(), v1::FINISH_REASON_CANCELLED);
  EXPECT_EQ(c.finished[0].revision(), 1u);
  EXPECT_EQ(server.Wait(), 0) << server.Log();
}

TEST(MainTest, SecondSignalEndsAtOnce) {
  ServerProcess server({kModel, "--store=memory:", "--drain-timeout=1h"});
  ASSERT_TRUE(server.AwaitReady());
  RunningStream stream(server, TextRequest("Hello", kEndless));
  server.Signal(SIGTERM);
  ASSERT_TRUE(server.AwaitLog("draining"));
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 1);
  EXPECT_THAT(server.Log(), HasSubstr("second signal"));
  EXPECT_FALSE(stream.ReadToTheEnd().status.ok());
}

// ---- What survives ----------------------------------------------------------

struct SurvivalCase {
  int signal;
  std::string weights;
};

class SurvivalTest : public ::testing::TestWithParam<SurvivalCase> {};

// Promise 2 and 3: a session that was put away by the end of its server
// continues, in another process, bit for bit as one that never stopped.
TEST_P(SurvivalTest, SessionContinuesBitForBitInAnotherProcess) {
  const int signal = GetParam().signal;
  const std::string weights = "--weights=" + GetParam().weights;
  v1::GenerateRequest second = SessionRequest("s", " and then", 60);
  second.mutable_output()->set_logprobs(3);
  const v1::GenerateRequest first = SessionRequest("s", "Once upon a", 40);

  ServerProcess kept({kModel, weights, "--store=memory:"});
  ASSERT_TRUE(kept.AwaitReady());
  ASSERT_TRUE(Generate(*kept.NewStub(), first).status.ok());
  const Completion uninterrupted = Generate(*kept.NewStub(), second);

  const TempDir dir;
  {
    ServerProcess before({kModel, weights, RocksDb(dir)});
    ASSERT_TRUE(before.AwaitReady());
    const Completion c = Generate(*before.NewStub(), first);
    ASSERT_EQ(c.finished.at(0).revision(), 1u);
    before.Signal(signal);
    EXPECT_EQ(before.Wait(), signal == SIGTERM ? 0 : 128 + signal);
  }
  ServerProcess after({kModel, weights, RocksDb(dir)});
  ASSERT_TRUE(after.AwaitReady());
  const Completion resumed = Generate(*after.NewStub(), second);
  ASSERT_TRUE(resumed.status.ok()) << resumed.status.error_message();
  EXPECT_EQ(resumed.started.resumed_from(), v1::RESUME_SOURCE_STORE);
  EXPECT_EQ(resumed.started.cached_tokens(),
            uninterrupted.started.cached_tokens());
  EXPECT_EQ(resumed.token_ids, uninterrupted.token_ids);
  EXPECT_EQ(resumed.text, uninterrupted.text);
  const auto logprobs = [](const Completion& c) {
    std::string bytes;
    for (const v1::GenerateResponse& message : c.messages) {
      for (const v1::TokenLogprobs& token : message.delta().logprobs()) {
        bytes += token.SerializeAsString();
      }
    }
    return bytes;
  };
  EXPECT_EQ(logprobs(resumed), logprobs(uninterrupted));
}

// A rewind, too, is on the disk before it is answered, and what it went back to
// is the state of that moment, bit for bit.
TEST(MainTest, ARewoundSessionContinuesBitForBitAfterAKill) {
  const TempDir dir;
  v1::GenerateRequest second = SessionRequest("s", " and then", 60);
  second.mutable_output()->set_logprobs(3);
  Completion said;
  {
    ServerProcess before({kModel, RocksDb(dir)});
    ASSERT_TRUE(before.AwaitReady());
    const auto stub = before.NewStub();
    Generate(*stub, SessionRequest("s", "Once upon a", 40));
    said = Generate(*stub, second);
    Generate(*stub, SessionRequest("s", " at last", 20));
    v1::RewindSessionRequest rewind;
    rewind.set_id("s");
    rewind.set_revision(1);
    grpc::ClientContext context;
    v1::Session session;
    const grpc::Status status =
        before.NewSessionsStub()->Rewind(&context, rewind, &session);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(session.revision(), 4u);
    before.Signal(SIGKILL);
    before.Wait();
  }
  ServerProcess after({kModel, RocksDb(dir)});
  ASSERT_TRUE(after.AwaitReady());
  const Completion again = Generate(*after.NewStub(), second);
  ASSERT_TRUE(again.status.ok()) << again.status.error_message();
  EXPECT_EQ(again.started.revision(), 4u);
  EXPECT_EQ(again.started.cached_tokens(), said.started.cached_tokens());
  EXPECT_EQ(again.token_ids, said.token_ids);
  EXPECT_EQ(again.text, said.text);
  EXPECT_EQ(again.logprobs, said.logprobs);
  EXPECT_EQ(again.finished.at(0).revision(), 5u);
}

// Whoever did not hear of its end sends the same request again.
TEST(MainTest, ARequestIsAnsweredAgainAfterAKill) {
  const TempDir dir;
  v1::GenerateRequest request = SessionRequest("s", "Once upon a", 40);
  request.set_request_id("r");
  Completion first;
  {
    ServerProcess before({kModel, RocksDb(dir)});
    ASSERT_TRUE(before.AwaitReady());
    first = Generate(*before.NewStub(), request);
    ASSERT_TRUE(first.status.ok()) << first.status.error_message();
    before.Signal(SIGKILL);
    before.Wait();
  }
  ServerProcess after({kModel, RocksDb(dir)});
  ASSERT_TRUE(after.AwaitReady());
  const Completion again = Generate(*after.NewStub(), request);
  ASSERT_TRUE(again.status.ok()) << again.status.error_message();
  EXPECT_TRUE(again.started.repeated());
  EXPECT_EQ(again.token_ids, first.token_ids);
  EXPECT_EQ(again.text, first.text);
  EXPECT_EQ(again.finished.at(0).revision(), 1u);
  EXPECT_EQ(MetricValue(ScrapeMetrics(after.metrics_port()),
                        "reprise_generated_tokens_total{model="
                        "\"linear_attn_elu\"}"),
            0);
}

INSTANTIATE_TEST_SUITE_P(Ends, SurvivalTest,
                         ::testing::Values(SurvivalCase{SIGTERM, "f32"},
                                           SurvivalCase{SIGTERM, "bf16"},
                                           SurvivalCase{SIGTERM, "int8"},
                                           SurvivalCase{SIGKILL, "f32"},
                                           SurvivalCase{SIGKILL, "bf16"},
                                           SurvivalCase{SIGKILL, "int8"}),
                         [](const auto& info) {
                           return (info.param.signal == SIGTERM ? "Drained_"
                                                                : "Killed_") +
                                  info.param.weights;
                         });

// ---- What keeps it from starting --------------------------------------------

// Neither server has a session or a store; the client has the state.
TEST(MainTest, SealedTurnsMoveBetweenProcessesBitForBit) {
  const TempDir dir;
  const std::string keys =
      "--seal-keys=" + WriteKeys(dir, "keys", KeyLine("k", 'a'));
  ServerProcess one({kModel, "--store=memory:", keys});
  ServerProcess two({kModel, "--store=memory:", keys});
  ServerProcess reference({kModel, "--store=memory:"});
  ASSERT_TRUE(one.AwaitReady() && two.AwaitReady() && reference.AwaitReady());
  const auto request = [](int turn) {
    v1::GenerateRequest made = TextRequest("Turn", 30);
    made.mutable_sampling()->set_seed(static_cast<uint64_t>(turn));
    made.mutable_output()->set_logprobs(3);
    return made;
  };
  std::string state;
  for (int turn = 0; turn < 4; ++turn) {
    v1::GenerateRequest sealed = request(turn);
    sealed.mutable_output()->mutable_snapshot()->set_zstd(turn % 2 == 1);
    if (turn > 0) sealed.set_snapshot(state);
    const Completion here =
        Generate(*(turn % 2 == 0 ? one : two).NewStub(), sealed);
    ASSERT_TRUE(here.status.ok()) << here.status.error_message();
    v1::GenerateRequest in_session = request(turn);
    in_session.set_session_id("s");
    in_session.set_create_session(true);
    const Completion there = Generate(*reference.NewStub(), in_session);
    EXPECT_EQ(here.token_ids, there.token_ids);
    EXPECT_EQ(here.logprobs, there.logprobs);
    EXPECT_EQ(here.started.cached_tokens(), there.started.cached_tokens());
    state = here.finished.at(0).snapshot().data();
  }
  EXPECT_THAT(one.Log(), HasSubstr("seal keys loaded keys=1 seals_with=k"));
  EXPECT_THAT(reference.Log(), HasSubstr("no --seal-keys: "));
}

TEST(MainTest, AKeyFileThatOthersMayReadIsRefused) {
  const TempDir dir;
  const std::string path = WriteKeys(dir, "keys", KeyLine("k", 'a'));
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  ServerProcess server({kModel, "--store=memory:", "--seal-keys=" + path});
  EXPECT_EQ(server.Wait(), 1);
  EXPECT_THAT(server.Log(), HasSubstr("--seal-keys: " + path + ": "));
  EXPECT_THAT(server.Log(), Not(HasSubstr("--seal-keys: --seal-keys")));
}

TEST(MainTest, TakenPortsAreNamedWithTheirFlags) {
  ServerProcess first({kModel, "--store=memory:"});
  ASSERT_TRUE(first.AwaitReady());
  const std::string grpc = "127.0.0.1:" + std::to_string(first.grpc_port());
  ServerProcess second({kModel, "--store=memory:", "--listen=" + grpc});
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(second.Log(),
              HasSubstr("reason=\"cannot listen on " + grpc +
                        ": Address already in use; choose another with "
                        "--listen\""));
  // Nothing else is said, and no model was loaded for it.
  EXPECT_THAT(second.Log(), Not(HasSubstr("grpc message")));
  EXPECT_THAT(second.Log(), Not(HasSubstr("model loaded")));
  const std::string metrics =
      "127.0.0.1:" + std::to_string(first.metrics_port());
  ServerProcess third(
      {kModel, "--store=memory:", "--metrics-listen=" + metrics});
  EXPECT_EQ(third.Wait(), 1);
  EXPECT_THAT(third.Log(),
              AllOf(HasSubstr(metrics), HasSubstr("--metrics-listen")));
}

TEST(MainTest, StoreInUseIsNamed) {
  const TempDir dir;
  ServerProcess first({kModel, RocksDb(dir)});
  ASSERT_TRUE(first.AwaitReady());
  ServerProcess second({kModel, RocksDb(dir)});
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(second.Log(),
              AllOf(HasSubstr("cannot start"), HasSubstr("--store")));
  // The first one is none the worse for it.
  EXPECT_TRUE(
      Generate(*first.NewStub(), SessionRequest("s", "a", 3)).status.ok());
}

TEST(MainTest, AdviceAboutAStoreFitsTheCause) {
  const TempDir dir;
  dir.Write("sessions", "a file");
  ServerProcess server({kModel, RocksDb(dir)});
  EXPECT_EQ(server.Wait(), 1);
  EXPECT_THAT(server.Log(),
              AllOf(HasSubstr("--store: cannot make the directory"),
                    HasSubstr("File exists; name a folder, not a file")));
}

TEST(MainTest, WhatTurnsSurviveIsLoggedAndOnlyPromisedWhereItCanBe) {
  const TempDir dir;
  ServerProcess server({kModel, "--store=rocksdb:" + dir.Path("sessions"),
                        "--durability=async"});
  ASSERT_TRUE(server.AwaitReady());
  EXPECT_THAT(server.Log(), AllOf(HasSubstr("turns_survive="),
                                  HasSubstr("takes the last 100 ms")));
  ServerProcess memory({kModel, "--store=memory:", "--durability=fsync"});
  EXPECT_EQ(memory.Wait(), 2);
  EXPECT_THAT(memory.Log(), HasSubstr("--durability: fsync cannot be chosen "
                                      "with a store of memory:"));
}

TEST(MainTest, ALimitOnFilesFailsTurnsAndNothingElse) {
  TempDir dir;
  ServerProcess server({kModel, RocksDb(dir)});
  ASSERT_TRUE(server.AwaitReady());
  const auto stub = server.NewStub();
  v1::GenerateRequest request = TextRequest("Hello", 2);
  request.set_session_id("s");
  request.set_create_session(true);
  EXPECT_TRUE(Generate(*stub, request).status.ok());
  struct rlimit before;
  ASSERT_EQ(prlimit(server.pid(), RLIMIT_FSIZE, nullptr, &before), 0);
  const struct rlimit none = {1, before.rlim_max};
  ASSERT_EQ(prlimit(server.pid(), RLIMIT_FSIZE, &none, nullptr), 0);
  EXPECT_EQ(Generate(*stub, request).status.error_code(),
            grpc::StatusCode::UNAVAILABLE);
  ASSERT_EQ(prlimit(server.pid(), RLIMIT_FSIZE, &before, nullptr), 0);
  const Completion again = Generate(*stub, request);
  EXPECT_TRUE(again.status.ok()) << again.status.error_message();
  ASSERT_EQ(again.finished.size(), 1u);
  EXPECT_EQ(again.finished[0].revision(), 2u);
}

// Some descriptors are kept from connections, so that turns can be committed.
TEST(MainTest, TooManyConnectionsAreRefusedAndTheServerGoesOn) {
  const TempDir dir;
  ServerProcess server({kModel, RocksDb(dir)});
  ASSERT_TRUE(server.AwaitReady());
  const auto stub = server.NewStub();
  const v1::GenerateRequest request = SessionRequest("s", "Hello", 2);
  EXPECT_TRUE(Generate(*stub, request).status.ok());
  struct rlimit before;
  ASSERT_EQ(prlimit(server.pid(), RLIMIT_NOFILE, nullptr, &before), 0);
  const struct rlimit few = {256, before.rlim_max};
  ASSERT_EQ(prlimit(server.pid(), RLIMIT_NOFILE, &few, nullptr), 0);
  std::vector<int> fds;
  for (int i = 0; i < 300; ++i)
    fds.push_back(ConnectToPort(server.grpc_port()));
  ASSERT_TRUE(server.AwaitLog("file descriptors run out"));
  // Who is connected is served, and the store has what it needs.
  EXPECT_TRUE(Generate(*stub, SessionRequest("t", "Hello", 2)).status.ok());
  EXPECT_EQ(Generate(*server.NewStub(), request).status.error_code(),
            grpc::StatusCode::UNAVAILABLE);
  for (const int fd : fds) close(fd);
  EXPECT_TRUE(Eventually(
      [&] { return Generate(*server.NewStub(), request).status.ok(); }));
}

TEST(MainTest, FolderWithoutAModelIsNamed) {
  const TempDir dir;
  ServerProcess server({"--model=" + dir.path(), "--store=memory:"});
  EXPECT_EQ(server.Wait(), 1);
  EXPECT_THAT(server.Log(),
              AllOf(HasSubstr("cannot start"), HasSubstr(dir.path()),
                    HasSubstr("config.json")));
}

TEST(MainTest, ModelThatIsNoFolderIsNamedBeforeAStoreIsMade) {
  const TempDir dir;
  ServerProcess server({"--model=/no/such/folder", RocksDb(dir)});
  EXPECT_EQ(server.Wait(), 1);
  EXPECT_FALSE(std::filesystem::exists(dir.path() + "/sessions"));
  EXPECT_THAT(server.Log(),
              AllOf(HasSubstr("--model"), HasSubstr("/no/such/folder")));
}

TEST(MainTest, WrongFlagHasAnExitCodeOfItsOwn) {
  ServerProcess server({"--threads=many"});
  EXPECT_EQ(server.Wait(), 2);
  EXPECT_THAT(server.Log(), HasSubstr("--threads"));
}

TEST(MainTest, HelpAndVersionAreAnswered) {
  ServerProcess help({"--help"});
  EXPECT_EQ(help.Wait(), 0);
  EXPECT_THAT(help.Log(), HasSubstr("--model"));
  ServerProcess version({"--version"});
  EXPECT_EQ(version.Wait(), 0);
  EXPECT_THAT(version.Log(), HasSubstr("reprise-server "));
}

TEST(MainTest, NoLibraryTakesTheDescriptorOfAClosedStream) {
  ServerProcess server({kModel, "--store=memory:"}, /*close_stdin=*/true);
  ASSERT_TRUE(server.AwaitReady());
  EXPECT_EQ(std::filesystem::read_symlink(
                "/proc/" + std::to_string(server.pid()) + "/fd/0"),
            "/dev/null");
}

TEST(MainTest, HelpThatCannotBeWrittenIsAnError) {
  const std::string binary = REPRISE_BINARY_DIR "/reprise-server";
  const CommandResult full =
      RunCommand("{ " + binary + " --help >/dev/full; }");
  EXPECT_EQ(WEXITSTATUS(full.status), 1);
  EXPECT_EQ(full.output,
            "reprise-server: cannot write to stdout: No space left on "
            "device\n");
  const CommandResult closed = RunCommand("{ " + binary + " --version >&-; }");
  EXPECT_EQ(WEXITSTATUS(closed.status), 1);
  EXPECT_THAT(closed.output, HasSubstr("Bad file descriptor"));
}

}  // namespace
}  // namespace reprise
