// What the `reprise` binary says of sessions and presets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/client/cli_fixture.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

TEST_F(CliTest, SessionCommandsSayWhatTheyDid) {
  v1::Session session;
  session.set_id("s");
  session.set_revision(3);
  session.set_tokens(40);
  session.set_snapshot_bytes(2048);
  server_.sessions.Put(session);
  const std::string after = ", after [0-9.]+ (us|ms|s): revision ";
  EXPECT_THAT(
      Run({"sessions", "suspend", "s"}).out,
      MatchesRegex("s is suspended" + after + "3, 40 tokens, 2.0 KiB\n"));
  EXPECT_EQ(Run({"sessions", "resume", "s"}).out,
            "s is resident, from the store, after 1.5 ms: revision 3, 40 "
            "tokens, 2.0 KiB\n");
  EXPECT_THAT(
      Run({"sessions", "fork", "s", "t"}).out,
      MatchesRegex("t is a fork of s" + after + "3, 40 tokens, 2.0 KiB\n"));
  EXPECT_THAT(Run({"sessions", "show", "t"}).out,
              HasSubstr("forked from:  s\n"));
  EXPECT_THAT(
      Run({"sessions", "rewind", "t", "2", "--expected-revision=3"}).out,
      MatchesRegex("t is as it was at revision 2" + after +
                   "4, 40 tokens, 2.0 KiB\n"));
  EXPECT_EQ(server_.sessions.last_rewind().revision(), 2u);
  EXPECT_EQ(server_.sessions.last_rewind().expected_revision(), 3u);
  EXPECT_EQ(Run({"sessions", "rewind", "t", "9"}).err,
            "reprise: OUT_OF_RANGE: not kept\n");
  EXPECT_EQ(Run({"sessions", "delete", "s", "t"}).out,
            "s is deleted\nt is deleted\n");
  EXPECT_EQ(Run({"sessions", "list", "--json"}).out, "{}\n");
}

TEST_F(CliTest, ShowListsWhatASessionCanBeRewoundTo) {
  v1::Session session;
  session.set_id("s");
  for (const uint64_t revision : {2, 3}) {
    v1::Checkpoint& checkpoint = *session.add_checkpoints();
    checkpoint.set_revision(revision);
    checkpoint.set_tokens(revision * 500);
    checkpoint.set_snapshot_bytes(revision * 1024);
  }
  server_.sessions.Put(session);
  const Outcome outcome = Run({"sessions", "show", "s"});
  EXPECT_THAT(outcome.out,
              HasSubstr("\n\nREWIND TO  TOKENS  SNAPSHOT  COMMITTED\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\n        3   1,500   3.0 KiB  1970-"));
}

TEST_F(CliTest, PresetCommandsSayWhatTheyDid) {
  v1::Session session;
  session.set_id("s");
  session.set_tokens(40);
  session.set_snapshot_bytes(2048);
  server_.sessions.Put(session);
  EXPECT_THAT(Run({"presets", "save", "p", "s"}).out,
              MatchesRegex("p is a preset, made of s, after [0-9.]+ (us|ms|s): "
                           "40 tokens, 2.0 KiB\n"));
  const Outcome list = Run({"presets", "list"});
  EXPECT_THAT(list.out, StartsWith("NAME  TOKENS  SNAPSHOT  CREATED "));
  EXPECT_THAT(list.out, HasSubstr("\np         40   2.0 KiB  1970-"));
  EXPECT_EQ(list.err, "1 preset\n");
  server_.inference.SetAnswer(AnswerOf({"x"}));
  EXPECT_EQ(Run({"complete", "a", "--preset=p"}).out, "x");
  EXPECT_EQ(server_.inference.last_request().preset(), "p");
  EXPECT_EQ(Run({"chat", "--session=t", "--preset=p"}, "hi\n").out, "x\n");
  EXPECT_EQ(server_.inference.last_request().session_id(), "t");
  EXPECT_EQ(Run({"presets", "delete", "p"}).out, "preset p is deleted\n");
  EXPECT_EQ(Run({"presets", "delete", "p"}).err,
            "reprise: NOT_FOUND: no such preset\n");
  EXPECT_EQ(Run({"presets", "list", "--json"}).out, "{}\n");
}

TEST_F(CliTest, ChatTakesTurnsBack) {
  v1::Session session;
  session.set_id("s");
  session.set_revision(5);
  server_.sessions.Put(session);
  FakeAnswer answer = AnswerOf({"answer"}, "s");
  answer.messages.front().mutable_started()->set_revision(4);
  answer.messages.back().mutable_finished()->set_revision(5);
  server_.inference.SetAnswer(answer);
  const Outcome last = Run({"chat", "--session=s"}, "one\n/rewind\n");
  const std::string after = ", after [0-9.]+ (us|ms|s): revision ";
  EXPECT_THAT(last.out, MatchesRegex("answer\ns is as it was at revision 4" +
                                     after + "6, 0 tokens, 0 B\n"));
  const Outcome named = Run({"chat", "--session=s"}, "/rewind 2\n");
  EXPECT_THAT(named.out, MatchesRegex("s is as it was at revision 2" + after +
                                      "7, 0 tokens, 0 B\n"));
  EXPECT_THAT(Run({"chat", "--session=s"}, "/fork t\n").err,
              MatchesRegex("this is session t now, a fork of s" + after +
                           "7, 0 tokens, 0 B\n"));
  EXPECT_EQ(Run({"chat", "--session=s"}, "/rewind x\n").err,
            "reprise: INVALID_ARGUMENT: /rewind: 'x' is not a revision; "
            "/session lists those that are kept\n");
  EXPECT_EQ(Run({"chat", "--session=s"}, "one\n/rewind\n/rewind\n").err,
            "reprise: FAILED_PRECONDITION: /rewind: there is no turn of this "
            "chat to take back; /session lists the revisions that are kept\n");
}

}  // namespace
}  // namespace reprise
