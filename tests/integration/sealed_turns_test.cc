// Turns whose state the client holds, over real gRPC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/client_states.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_clock.h"
#include "tests/support/narrow_stub.h"
#include "tests/support/sealed_calls.h"
#include "tests/support/test_server.h"

namespace reprise {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;

class SealedTurnsTest : public ::testing::Test {
 protected:
  SealedTurnsTest() {
    options_.seal_keys = WriteKeys(dir_, "keys", KeyLine("k", 'a'));
    server_ = std::make_unique<TestServer>(options_);
  }

  // Shows its numbers, and asks for the state.
  static v1::GenerateRequest Request(const std::string& text, uint64_t seed) {
    v1::GenerateRequest request = TextRequest(text, 20);
    request.mutable_sampling()->set_seed(seed);
    request.mutable_sampling()->set_presence_penalty(0.5);
    request.mutable_output()->set_logprobs(3);
    request.mutable_output()->mutable_snapshot();
    return request;
  }
  static v1::GenerateRequest From(const std::string& snapshot,
                                  const std::string& text, uint64_t seed) {
    v1::GenerateRequest request = Request(text, seed);
    request.set_snapshot(snapshot);
    return request;
  }
  static v1::GenerateRequest InSession(const std::string& session,
                                       const std::string& text, uint64_t seed) {
    v1::GenerateRequest request = Request(text, seed);
    request.mutable_output()->clear_snapshot();
    request.set_session_id(session);
    request.set_create_session(true);
    return request;
  }
  Completion Run(const v1::GenerateRequest& request) {
    return Generate(server_->inference(), request);
  }
  static std::string StateOf(const Completion& completion, int index = 0) {
    EXPECT_TRUE(completion.status.ok()) << completion.status.error_message();
    if (std::ssize(completion.finished) <= index) return "";
    return completion.finished.at(index).snapshot().data();
  }

  // No session is stored, and every slot is free.
  static void ExpectNothingKept(TestServer& server) {
    grpc::ClientContext context;
    v1::ListSessionsResponse page;
    EXPECT_TRUE(server.sessions().List(&context, {}, &page).ok());
    EXPECT_EQ(page.sessions_size(), 0);
    EXPECT_EQ(server.manager().num_free_slots(), server.manager().num_slots());
  }

  TempDir dir_;
  ServerOptions options_ = TestServer::SmallOptions();
  std::unique_ptr<TestServer> server_;
};

TEST_F(SealedTurnsTest, AConversationMovesBetweenServersBitForBit) {
  TestServer other(options_), reference;
  TestServer* servers[] = {server_.get(), &other};
  const std::vector<std::string> texts = {"abc d", "cc", "", "d"};
  std::string state;
  for (size_t turn = 0; turn < texts.size(); ++turn) {
    const v1::GenerateRequest request =
        turn == 0 ? Request(texts[0], 1) : From(state, texts[turn], turn + 1);
    const Completion here = Generate(servers[turn % 2]->inference(), request);
    const Completion there =
        Generate(reference.inference(), InSession("s", texts[turn], turn + 1));
    ExpectSame(here, there);
    const v1::Finished& finished = here.finished.at(0);
    EXPECT_EQ(here.started.resumed_from(),
              turn == 0 ? v1::RESUME_SOURCE_NONE : v1::RESUME_SOURCE_CLIENT);
    EXPECT_FALSE(finished.has_revision());
    const v1::SnapshotInfo& info = finished.snapshot().info();
    EXPECT_EQ(info.revision(), turn + 1);
    EXPECT_EQ(info.session_id(), "");
    EXPECT_EQ(info.tokens(), here.started.cached_tokens() + (turn > 0 ? 1 : 0) +
                                 here.started.prompt_tokens() + 20);
    EXPECT_EQ(info.sealed_bytes(), finished.snapshot().data().size());
    state = StateOf(here);
  }
  ExpectNothingKept(*server_);
  ExpectNothingKept(other);
  EXPECT_THAT(other.metrics().Scrape(),
              HasSubstr("reprise_time_to_first_token_seconds_count{model="
                        "\"fake\",source=\"client\"} 2"));
  EXPECT_THAT(other.metrics().Scrape(),
              HasSubstr("reprise_session_resume_seconds_count{tier="
                        "\"client\"} 2"));
}

TEST_F(SealedTurnsTest, StatesAndSessionsBecomeOneAnother) {
  Run(InSession("s", "abc d", 1));
  v1::ExportSessionRequest request;
  request.set_id("s");
  const Exported exported = Export(server_->sessions(), request);
  const Completion turn = Run(From(exported.bytes, "cc", 2));
  EXPECT_EQ(turn.started.revision(), 1u);
  EXPECT_EQ(turn.finished.at(0).snapshot().info().session_id(), "s");
  const Imported imported = Import(server_->sessions(), StateOf(turn), "copy");
  ASSERT_TRUE(imported.status.ok()) << imported.status.error_message();
  EXPECT_EQ(imported.session.revision(), 2u);
  ExpectSame(turn, Run(InSession("s", "cc", 2)));
  ExpectSame(Run(InSession("copy", "d", 3)), Run(InSession("s", "d", 3)));
}

TEST_F(SealedTurnsTest, EveryCompletionHasItsOwnState) {
  const std::string state = StateOf(Run(Request("abc d", 1)));
  v1::GenerateRequest request = From(state, "cc", 2);
  request.set_n(3);
  const Completion several = Run(request);
  ASSERT_EQ(several.finished.size(), 3u);
  for (const v1::Finished& finished : several.finished) {
    const Completion alone = Run(From(state, "cc", 2 + finished.index()));
    ExpectSame(Run(From(finished.snapshot().data(), "d", 9)),
               Run(From(StateOf(alone), "d", 9)));
  }
  ExpectNothingKept(*server_);
}

TEST_F(SealedTurnsTest, ASessionGivesItsStateTooCommittedOrNot) {
  Run(InSession("s", "abc d", 1));
  v1::GenerateRequest request = InSession("s", "cc", 2);
  request.mutable_output()->mutable_snapshot();
  request.set_commit(v1::COMMIT_POLICY_NEVER);
  const Completion tried = Run(request);
  EXPECT_FALSE(tried.finished.at(0).has_revision());
  request.clear_commit();
  const Completion committed = Run(request);
  EXPECT_EQ(committed.finished.at(0).revision(), 2u);
  EXPECT_EQ(committed.finished.at(0).snapshot().info().revision(), 2u);
  const Completion next = Run(InSession("s", "d", 3));
  ExpectSame(Run(From(StateOf(tried), "d", 3)), next);
  ExpectSame(Run(From(StateOf(committed), "d", 3)), next);
}

TEST_F(SealedTurnsTest, AStopStringLeavesWhatTheClientSaw) {
  const std::string text = Run(InSession("whole", "abc d", 1)).text;
  ASSERT_GT(text.size(), 8u);
  v1::GenerateRequest request = Request("abc d", 1);
  request.mutable_stopping()->add_stop(text.substr(5, 2));
  const Completion stopped = Run(request);
  EXPECT_EQ(stopped.finished.at(0).reason(), v1::FINISH_REASON_STOP_STRING);
  v1::GenerateRequest in_session = InSession("s", "abc d", 1);
  *in_session.mutable_stopping() = request.stopping();
  Run(in_session);
  ExpectSame(Run(From(StateOf(stopped), "d", 3)), Run(InSession("s", "d", 3)));
}

TEST_F(SealedTurnsTest, RoundedStatesSaySoAndGoOn) {
  v1::GenerateRequest request = Request("abc d", 1);
  v1::SealOptions* seal = request.mutable_output()->mutable_snapshot();
  seal->set_elements(v1::STATE_ELEMENTS_BF16);
  seal->set_zstd(true);
  const Completion first = Run(request);
  const v1::SnapshotInfo& info = first.finished.at(0).snapshot().info();
  EXPECT_EQ(info.elements(), v1::STATE_ELEMENTS_BF16);
  EXPECT_TRUE(info.zstd());
  const Completion next = Run(From(StateOf(first), "cc", 2));
  EXPECT_TRUE(next.status.ok()) << next.status.error_message();
  EXPECT_EQ(next.finished.at(0).snapshot().info().elements(),
            v1::STATE_ELEMENTS_F32);
}

// ---- The end of a turn ------------------------------------------------------

// The server ends the turn, and says so in Finished.
TEST_F(SealedTurnsTest, AnInterruptedTurnGivesWhatWasStreamedUnlessRolledBack) {
  for (const bool roll_back : {false, true}) {
    TestServer server(options_);
    server.gate().Limit(5);
    v1::GenerateRequest request = Request("abc d", 1);
    request.mutable_stopping()->set_max_new_tokens(500);
    if (roll_back) request.set_on_cancel(v1::ON_CANCEL_ROLL_BACK);
    grpc::ClientContext context;
    auto reader = server.inference().Generate(&context, request);
    Completion completion;
    v1::GenerateResponse message;
    ASSERT_TRUE(reader->Read(&message));
    server.gate().AwaitBlocked();
    server.rpc().CancelCalls();
    server.gate().Open();
    while (reader->Read(&message)) AddMessage(message, completion);
    EXPECT_EQ(reader->Finish().error_code(), StatusCode::UNAVAILABLE);
    ASSERT_EQ(completion.finished.size(), 1u);
    const v1::Finished& finished = completion.finished.at(0);
    EXPECT_EQ(finished.has_snapshot(), !roll_back);
    if (roll_back) continue;
    const uint64_t streamed = finished.usage().completion_tokens();
    EXPECT_EQ(finished.snapshot().info().tokens(), 5 - 2 + streamed);
    v1::GenerateRequest shorter = Request("abc d", 1);
    shorter.mutable_stopping()->set_max_new_tokens(
        static_cast<uint32_t>(streamed));
    ExpectSame(Run(From(finished.snapshot().data(), "d", 3)),
               Run(From(StateOf(Run(shorter)), "d", 3)));
  }
}

TEST_F(SealedTurnsTest, WithoutAskingThereIsNoState) {
  v1::GenerateRequest request = Request("abc d", 1);
  request.mutable_output()->clear_snapshot();
  EXPECT_FALSE(Run(request).finished.at(0).has_snapshot());
}

// ---- What is refused --------------------------------------------------------

TEST_F(SealedTurnsTest, OnlyWhatTheServerSealedIsTaken) {
  const std::string state = StateOf(Run(Request("abc d", 1)));
  const auto expect_refused = [&](const std::string& bytes, StatusCode code,
                                  const std::string& text) {
    const Completion refused = Run(From(bytes, "cc", 2));
    EXPECT_EQ(refused.status.error_code(), code);
    EXPECT_THAT(refused.status.error_message(), HasSubstr(text));
    EXPECT_TRUE(refused.messages.empty());
  };
  for (size_t i = 0; i < state.size(); i += 5) {
    std::string damaged = state;
    damaged[i] ^= 1;
    const Completion refused = Run(From(damaged, "cc", 2));
    EXPECT_FALSE(refused.status.ok()) << i;
    EXPECT_TRUE(refused.messages.empty());
  }
  expect_refused(state.substr(0, state.size() / 2), StatusCode::DATA_LOSS,
                 "snapshot: ");
  expect_refused("", StatusCode::INVALID_ARGUMENT, "snapshot: has no bytes");
  ServerOptions options = options_;
  options.tenant = "other";
  TestServer others(options);
  expect_refused(StateOf(Generate(others.inference(), Request("abc d", 1))),
                 StatusCode::PERMISSION_DENIED, "another tenant");
  ExpectNothingKept(*server_);
}

TEST_F(SealedTurnsTest, StatesExpire) {
  FakeClock clock;
  TestServer server(options_, clock);
  v1::GenerateRequest request = Request("abc d", 1);
  request.mutable_output()->mutable_snapshot()->set_ttl_ms(1000);
  const Completion first = Generate(server.inference(), request);
  EXPECT_EQ(first.finished.at(0).snapshot().info().expires_unix_ms(),
            clock.UnixMs() + 1000);
  clock.AdvanceMs(1000);
  const Completion late =
      Generate(server.inference(), From(StateOf(first), "cc", 2));
  EXPECT_EQ(late.status.error_code(), StatusCode::FAILED_PRECONDITION);
}

TEST_F(SealedTurnsTest, WhatClientsSendIsLimitedTogether) {
  const std::string state = StateOf(Run(Request("abc d", 1)));
  ServerOptions options = options_;
  // It is held as it came and opened.
  options.sealed_memory_bytes = 2 * static_cast<int64_t>(state.size()) - 1;
  TestServer server(options);
  const Completion refused = Generate(server.inference(), From(state, "cc", 2));
  EXPECT_EQ(refused.status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("(sealed_memory)"));
}

TEST_F(SealedTurnsTest, AStateWithoutRoomEndsTheTurnAndCommitsNothing) {
  const std::string state = StateOf(Run(Request("abc d", 1)));
  ServerOptions options = options_;
  options.sealed_memory_bytes = static_cast<int64_t>(state.size()) - 1;
  TestServer server(options);
  v1::GenerateRequest request = InSession("s", "abc d", 1);
  request.mutable_output()->mutable_snapshot();
  const Completion refused = Generate(server.inference(), request);
  EXPECT_EQ(refused.status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("(sealed_memory)"));
  EXPECT_TRUE(refused.finished.empty());
  // It is not at revision 1; a turn without a state begins it.
  const Completion first =
      Generate(server.inference(), InSession("s", "abc d", 1));
  EXPECT_EQ(first.finished.at(0).revision(), 1u);
}

TEST_F(SealedTurnsTest, AStateIsCountedUntilItIsReadAndThenNoLonger) {
  // A message that does not fit into what a narrow client takes.
  v1::GenerateRequest request = Request("abc d", 1);
  request.mutable_stopping()->set_max_new_tokens(1500);
  request.mutable_sampling()->set_penalty_last_n(2000);  // kept with the state
  request.mutable_output()->clear_logprobs();
  const std::string state = StateOf(Run(request));
  ASSERT_GT(state.size(), 4096u);
  ServerOptions options = options_;
  options.stream_buffer = 4096;  // never full
  options.sealed_memory_bytes = static_cast<int64_t>(state.size()) + 100;
  TestServer server(options);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(StateOf(Generate(server.inference(), request)).size(),
              state.size());
  }
  const auto stub = NarrowStub(server.rpc().port());
  grpc::ClientContext context;
  auto unread = stub->Generate(&context, request);
  v1::GenerateResponse message;
  ASSERT_TRUE(unread->Read(&message));
  ByteBudget& budget = server.manager().client_states().sealed_bytes();
  EXPECT_TRUE(Eventually([&] { return budget.used() > 0; }));
  EXPECT_EQ(budget.used(), static_cast<int64_t>(state.size()));
  EXPECT_EQ(Generate(server.inference(), request).status.error_code(),
            StatusCode::RESOURCE_EXHAUSTED);
  context.TryCancel();
  EXPECT_FALSE(unread->Finish().ok());
  EXPECT_TRUE(Eventually([&] { return server.open_calls() == 0; }));
  EXPECT_TRUE(Eventually([&] { return budget.used() == 0; }));
}

}  // namespace
}  // namespace reprise
