// Several servers on one store: a conversation is the same wherever its turns
// are carried out, whichever of them ends or stops meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/replicas_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/tcp_relay.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Tokens: enough that a turn is not over before something happens to it, at
// 5,000 a second.
constexpr uint32_t kLong = 1'500;

constexpr const char* kTexts[] = {
    "In the beginning God created", " And the earth was without form,",
    " And God said,", " And it was so.", " And the evening and the morning"};

TEST_F(ReplicasTest, AConversationMovesAtEveryTurn) {
  for (size_t turn = 0; turn < 12; ++turn) {
    const v1::GenerateRequest request =
        ReplicaTurn(kTexts[turn % std::size(kTexts)], 20, 100 + turn);
    const Completion expected = On(*alone_, request);
    ASSERT_TRUE(expected.status.ok()) << expected.status.error_message();
    const Completion moved = On(*replicas_[turn % kReplicas], request);
    ExpectSameAnswer(moved, expected);
    EXPECT_EQ(moved.finished.at(0).revision(), turn + 1);
    if (turn == 0) continue;
    // Nothing is computed again: it is read from the store, also where an older
    // revision is still in a slot.
    EXPECT_EQ(moved.started.resumed_from(), v1::RESUME_SOURCE_STORE);
    EXPECT_EQ(moved.started.cached_tokens(), expected.started.cached_tokens());
    if (turn < kReplicas) continue;
    EXPECT_EQ(moved.started.resume_reason(),
              "another server has committed revision " + std::to_string(turn));
  }
}

// What else there is, through any of them.
TEST_F(ReplicasTest, ForksRewindsAndDeletionsAreEverybodys) {
  const auto a = Connect(Address(0)), b = Connect(Address(1));
  const Completion first = On(*replicas_[0], ReplicaTurn(kTexts[0], 10, 1));
  const v1::GenerateRequest next = ReplicaTurn(kTexts[1], 10, 2);
  const Completion second = On(*replicas_[1], next);
  v1::RewindSessionRequest rewind;
  rewind.set_id("s");
  rewind.set_revision(1);
  EXPECT_EQ(a->RewindSession(rewind)->revision(), 3u);
  const Completion again = On(*replicas_[1], next);
  ExpectSameAnswer(again, second);
  EXPECT_EQ(again.finished.at(0).revision(), 4u);
  v1::ForkSessionRequest fork;
  fork.set_id("s");
  fork.set_new_id("t");
  EXPECT_TRUE(b->ForkSession(fork).ok());
  v1::GenerateRequest third = ReplicaTurn(kTexts[2], 10, 3);
  const Completion of_s = On(*replicas_[2], third);
  third.set_session_id("t");
  ExpectSameAnswer(On(*replicas_[0], third), of_s);
  EXPECT_TRUE(a->DeleteSession("s").ok());
  EXPECT_TRUE(absl::IsNotFound(b->GetSession("s").status()));
  // Made again: another session, though replica 1 has the old one in a slot.
  const Completion anew = On(*replicas_[1], ReplicaTurn(kTexts[0], 10, 1));
  ExpectSameAnswer(anew, first);
  EXPECT_EQ(anew.started.revision(), 0u);
}

TEST_F(ReplicasTest, AKilledServersTurnGoesOnElsewhere) {
  uint64_t revision = 0;
  size_t turn = 0;
  // Tokens after which the server is killed; none: when it has started.
  for (const uint32_t tokens : {0, 1, 40, 120}) {
    const v1::GenerateRequest request =
        ReplicaTurn(kTexts[turn % std::size(kTexts)], kLong, turn);
    ++turn;
    const Completion expected = On(*alone_, request);
    const auto client = Connect(Addresses(turn % kReplicas));
    ASSERT_NE(client, nullptr);
    const std::string first = client->address();
    const size_t victim = ReplicaAt(first);
    ASSERT_LT(victim, replicas_.size());
    std::vector<std::string> notices;
    const Completion resumed = Resuming(
        *client, request,
        OnceAt(tokens, [&] { replicas_[victim]->Signal(SIGKILL); }), notices);
    ExpectSameAnswer(resumed, expected);
    EXPECT_NE(client->address(), first);
    EXPECT_THAT(notices,
                ElementsAre("the server at " + first +
                            " went away; continued on " + client->address()));
    EXPECT_EQ(resumed.started.revision(), revision);
    EXPECT_EQ(resumed.finished.at(0).revision(), ++revision);
    EXPECT_EQ(replicas_[victim]->Wait(), 128 + SIGKILL);
    Replace(victim);
  }
  ExpectSameAnswer(On(*replicas_[0], ReplicaTurn("So", 20, 9)),
                   On(*alone_, ReplicaTurn("So", 20, 9)));
}

TEST_F(ReplicasTest, WithoutASessionTooAndForSeveralAnswers) {
  v1::GenerateRequest request = ReplicaTurn(kTexts[0], kLong, 5);
  request.clear_session_id();
  request.clear_create_session();
  request.set_n(3);
  const auto texts = [](const Completion& completion) {
    std::array<std::string, 3> texts;
    for (const v1::GenerateResponse& message : completion.messages) {
      texts.at(message.delta().index()) += message.delta().text();
    }
    return texts;
  };
  const Completion expected = On(*alone_, request);
  const auto client = Connect(Addresses(0));
  std::vector<std::string> notices;
  const Completion resumed =
      Resuming(*client, request,
               OnceAt(60, [&] { replicas_[0]->Signal(SIGKILL); }), notices);
  EXPECT_TRUE(resumed.status.ok()) << resumed.status.error_message();
  EXPECT_EQ(texts(resumed), texts(expected));
  EXPECT_EQ(resumed.finished.size(), 3u);
  EXPECT_EQ(notices.size(), 1u);
}

// It has no time for the turn, keeps what it has streamed and says so. The
// session is rewound, and the turn is whole all the same.
TEST_F(ReplicasTest, AServerThatHasToEndKeepsAPartAndTheTurnIsMadeWhole) {
  replicas_[0] = NewServer(redis_.Uri(), {"--drain-timeout=0"});
  ASSERT_TRUE(replicas_[0]->AwaitReady());
  On(*replicas_[1], ReplicaTurn(kTexts[0], 20, 1));
  On(*alone_, ReplicaTurn(kTexts[0], 20, 1));
  const v1::GenerateRequest request = ReplicaTurn(kTexts[1], kLong, 2);
  const Completion expected = On(*alone_, request);
  const auto client = Connect(Addresses(0));
  std::vector<std::string> notices;
  const Completion resumed =
      Resuming(*client, request,
               OnceAt(20, [&] { replicas_[0]->Signal(SIGTERM); }), notices);
  ExpectSameAnswer(resumed, expected);
  EXPECT_EQ(replicas_[0]->Wait(), 0);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_THAT(notices[0], HasSubstr("; continued on " + client->address()));
  // 2 has the part, 3 is 1 again.
  EXPECT_EQ(resumed.finished.at(0).revision(), 4u);
  EXPECT_EQ(resumed.started.revision(), 1u);
}

// The server lives, and takes the end of the connection for a cancelled call:
// it keeps what it has streamed, while the client is at another one already.
TEST_F(ReplicasTest, AConnectionThatBreaksIsNotACancelledTurn) {
  for (uint64_t turn = 0; turn < 5; ++turn) {
    const v1::GenerateRequest request = ReplicaTurn(kTexts[turn], kLong, turn);
    const Completion expected = On(*alone_, request);
    TcpRelay network(replicas_[0]->grpc_port());
    const auto client = Connect(network.address() + "," + Address(1));
    std::vector<std::string> notices;
    const Completion resumed =
        Resuming(*client, request, OnceAt(20, [&] { network.Cut(); }), notices);
    ExpectSameAnswer(resumed, expected);
    EXPECT_THAT(notices,
                ElementsAre("the server at " + network.address() +
                            " went away; continued on " + client->address()));
    EXPECT_EQ(Get(*replicas_[2], "s").revision(),
              resumed.finished.at(0).revision());
  }
}

TEST_F(ReplicasTest, AnAnswerThatWasLostAfterItsCommitIsToldAgain) {
  v1::GenerateRequest request = ReplicaTurn(kTexts[0], kLong, 1);
  // What is recorded. And the rest of the answer fits into HTTP/2's window, so
  // that the server is done with it while nobody reads.
  request.mutable_output()->clear_logprobs();
  const Completion expected = On(*alone_, request);
  TcpRelay network(replicas_[0]->grpc_port());
  // One that does not give the silent connection up by itself.
  const auto client = Connect(network.address() + "," + Address(1),
                              /*keepalive_ms=*/3'600'000);
  std::vector<std::string> notices;
  const Completion resumed =
      Resuming(*client, request,
               OnceAt(3,
                      [&] {
                        network.Hold();
                        EXPECT_TRUE(Eventually([&] {
                          return Sessions(*replicas_[2]) == 1;
                        }));  // committed
                        network.Cut();
                      }),
               notices);
  ExpectSameAnswer(resumed, expected);
  EXPECT_EQ(notices.size(), 1u);
  EXPECT_EQ(resumed.finished.at(0).revision(), 1u);
  EXPECT_EQ(Get(*replicas_[2], "s").revision(), 1u);  // and only once
}

TEST_F(ReplicasTest, OfTwoThatRaceOneCommits) {
  constexpr int kRounds = 50;
  const auto a = replicas_[0]->NewStub(), b = replicas_[1]->NewStub();
  std::vector<v1::GenerateRequest> history;
  for (uint64_t round = 0; round < kRounds; ++round) {
    v1::GenerateRequest of_a = ReplicaTurn(kTexts[0], 4, round);
    v1::GenerateRequest of_b = ReplicaTurn(kTexts[1], 4, 1'000 + round);
    of_a.set_expected_revision(round);
    of_b.set_expected_revision(round);
    auto other =
        std::async(std::launch::async, [&] { return Generate(*b, of_b); });
    const Completion from_a = Generate(*a, of_a);
    const Completion from_b = other.get();
    ASSERT_NE(from_a.status.ok(), from_b.status.ok())
        << from_a.status.error_message() << "\n"
        << from_b.status.error_message();
    const Completion& winner = from_a.status.ok() ? from_a : from_b;
    const Completion& loser = from_a.status.ok() ? from_b : from_a;
    EXPECT_EQ(loser.status.error_code(), grpc::StatusCode::ABORTED)
        << loser.status.error_message();
    EXPECT_EQ(winner.finished.at(0).revision(), round + 1);
    history.push_back(from_a.status.ok() ? of_a : of_b);
  }
  EXPECT_EQ(Get(*replicas_[2], "s").revision(), kRounds);
  // What was committed is a conversation: of the winners, one after another.
  for (v1::GenerateRequest& request : history) {
    ASSERT_TRUE(On(*alone_, request).status.ok());
  }
  const v1::GenerateRequest last = ReplicaTurn("So", 20, 9);
  ExpectSameAnswer(On(*replicas_[2], last), On(*alone_, last));
}

TEST_F(ReplicasTest, AServerThatWasStoppedCannotCommitOverNewerWork) {
  const v1::GenerateRequest first = ReplicaTurn(kTexts[0], 20, 1);
  On(*replicas_[0], first);
  On(*alone_, first);
  // Replica 0 stops in the middle of a turn, with the session in a slot.
  const v1::GenerateRequest lost = ReplicaTurn(kTexts[1], kLong, 2);
  const auto stub = replicas_[0]->NewStub();
  grpc::ClientContext context;
  auto reader = stub->Generate(&context, lost);
  v1::GenerateResponse message;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(reader->Read(&message));
  replicas_[0]->Signal(SIGSTOP);
  const v1::GenerateRequest newer = ReplicaTurn(kTexts[2], 20, 3);
  const Completion done = On(*replicas_[1], newer);
  ExpectSameAnswer(done, On(*alone_, newer));
  EXPECT_EQ(done.finished.at(0).revision(), 2u);
  replicas_[0]->Signal(SIGCONT);
  bool finished = false;
  while (reader->Read(&message)) finished |= message.has_finished();
  const grpc::Status late = reader->Finish();
  EXPECT_FALSE(finished);
  EXPECT_EQ(late.error_code(), grpc::StatusCode::ABORTED)
      << late.error_message();
  EXPECT_THAT(late.error_message(), HasSubstr("revision"));
  EXPECT_EQ(Get(*replicas_[0], "s").revision(), 2u);
  // And what it had in its slot is not gone on from.
  const v1::GenerateRequest next = ReplicaTurn(kTexts[3], 20, 4);
  const Completion after = On(*replicas_[0], next);
  ExpectSameAnswer(after, On(*alone_, next));
  EXPECT_EQ(after.started.resumed_from(), v1::RESUME_SOURCE_STORE);
  EXPECT_EQ(after.finished.at(0).revision(), 3u);
}

// The client finds a stopped server out, and has the turn made elsewhere.
TEST_F(ReplicasTest, AStoppedServersTurnGoesOnElsewhere) {
  const v1::GenerateRequest request = ReplicaTurn(kTexts[0], kLong, 1);
  const Completion expected = On(*alone_, request);
  const auto client = Connect(Addresses(0));
  std::vector<std::string> notices;
  const Completion resumed = Resuming(
      *client, request, OnceAt(20, [&] { replicas_[0]->Signal(SIGSTOP); }),
      // Less than it takes to notice: that does not count.
      notices, /*timeout_ms=*/kReplicaKeepaliveMs);
  ExpectSameAnswer(resumed, expected);
  EXPECT_EQ(resumed.finished.at(0).revision(), 1u);
  EXPECT_THAT(notices,
              ElementsAre("the server at " + Address(0) +
                          " went away: it does not answer; continued on " +
                          client->address()));
  replicas_[0]->Signal(SIGCONT);
  const v1::GenerateRequest next = ReplicaTurn(kTexts[3], 20, 4);
  Completion after;
  // It ends the turn that nobody listens to first.
  EXPECT_TRUE(Eventually([&] {
    after = On(*replicas_[0], next);
    return after.status.error_code() != grpc::StatusCode::ABORTED;
  })) << after.status.error_message();
  ExpectSameAnswer(after, On(*alone_, next));
  ASSERT_EQ(after.finished.size(), 1u);
  EXPECT_EQ(after.finished[0].revision(), 2u);
}

TEST_F(ReplicasTest, WithoutRedisTurnsAreRefusedUntilItIsBack) {
  const v1::GenerateRequest first = ReplicaTurn(kTexts[0], 20, 1);
  ExpectSameAnswer(On(*replicas_[0], first), On(*alone_, first));
  redis_.Kill();
  v1::GenerateRequest next = ReplicaTurn(kTexts[1], 20, 2);
  for (const auto& replica : replicas_) {
    const Completion refused = On(*replica, next);
    EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(refused.status.error_message(), HasSubstr(redis_.address()));
    EXPECT_EQ(refused.text, "");
  }
  // What needs no store goes on.
  v1::GenerateRequest stateless = next;
  stateless.clear_session_id();
  stateless.clear_create_session();
  EXPECT_TRUE(On(*replicas_[0], stateless).status.ok());
  redis_.Start();
  Completion again;
  EXPECT_TRUE(Eventually([&] {
    again = On(*replicas_[1], next);
    return again.status.ok();
  })) << again.status.error_message();
  ExpectSameAnswer(again, On(*alone_, next));
  EXPECT_EQ(again.finished.at(0).revision(), 2u);
}

TEST_F(ReplicasTest, ATurnWhoseStoreWentAwayIsMadeWhenItIsBack) {
  const v1::GenerateRequest first = ReplicaTurn(kTexts[0], 20, 1);
  ExpectSameAnswer(On(*replicas_[0], first), On(*alone_, first));
  const v1::GenerateRequest request = ReplicaTurn(kTexts[1], kLong, 2);
  const Completion expected = On(*alone_, request);
  const auto client = Connect(Addresses(0));
  bool restarted = false;
  std::vector<std::string> notices;
  auto restart = std::async(std::launch::deferred, [&] { redis_.Start(); });
  const Completion resumed =
      Resuming(*client, request,
               OnceAt(5,
                      [&] {
                        redis_.Kill();
                        restart = std::async(std::launch::async, [&] {
                          // Back only after the turn has failed.
                          restarted = Eventually([&] { return notices_ > 0; });
                          redis_.Start();
                        });
                      }),
               notices);
  restart.get();
  EXPECT_TRUE(restarted);
  ExpectSameAnswer(resumed, expected);
  EXPECT_EQ(resumed.finished.at(0).revision(), 2u);
  ASSERT_FALSE(notices.empty());
  EXPECT_THAT(notices[0], HasSubstr(redis_.address()));
}

}  // namespace
}  // namespace reprise
