// Going back to an earlier revision, over real gRPC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/sessions_fixture.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;

class RewindTest : public SessionsTest {
 protected:
  v1::Session Rewind(const std::string& id, uint64_t revision,
                     grpc::StatusCode code = grpc::StatusCode::OK) {
    v1::RewindSessionRequest request = Named<v1::RewindSessionRequest>(id);
    request.set_revision(revision);
    return Call<v1::Session>(&Stub::Rewind, request, code);
  }

  // A turn of 20 tokens whose numbers are shown, drawn from `seed`.
  Completion Say(const std::string& id, const std::string& text,
                 uint64_t seed) {
    v1::GenerateRequest request = SessionRequest(id, text, 20);
    request.mutable_sampling()->set_seed(seed);
    request.mutable_output()->set_logprobs(3);
    return Generate(server_.inference(), request);
  }

  static void ExpectSame(const Completion& a, const Completion& b) {
    ASSERT_TRUE(a.status.ok() && b.status.ok());
    EXPECT_EQ(a.token_ids, b.token_ids);
    EXPECT_EQ(a.text, b.text);
    EXPECT_EQ(a.logprobs, b.logprobs);
    EXPECT_EQ(a.started.cached_tokens(), b.started.cached_tokens());
  }
};

TEST_F(RewindTest, TheSessionGoesOnAsItDidFromThere) {
  Say("s", "abc d", 1);
  const Completion second = Say("s", "cc", 2);
  const Completion third = Say("s", "d", 3);
  const v1::Session back = Rewind("s", 1);
  EXPECT_EQ(back.revision(), 4u);
  EXPECT_EQ(back.tokens(), 23u);
  EXPECT_EQ(back.place(), v1::SESSION_PLACE_RESIDENT);
  const Completion again = Say("s", "cc", 2);
  EXPECT_EQ(again.started.revision(), 4u);
  EXPECT_EQ(again.finished.at(0).revision(), 5u);
  ExpectSame(again, second);
  ExpectSame(Say("s", "d", 3), third);
  // Forward to where it stood before.
  Rewind("s", 3);
  const Completion after = Say("s", "c", 4);
  Rewind("s", 3);
  Suspend("s");
  ExpectSame(Say("s", "c", 4), after);
}

TEST_F(RewindTest, AnAnswerIsGeneratedAnewFromTheRevisionBefore) {
  Say("s", "abc d", 1);
  const Completion first = Say("s", "cc", 2);
  Rewind("s", first.started.revision());
  const Completion other = Say("s", "cc", 99);
  EXPECT_NE(other.token_ids, first.token_ids);
  EXPECT_EQ(Get("s").tokens(), 23u + 1 + 20);
  Rewind("s", other.started.revision());
  ExpectSame(Say("s", "cc", 2), first);
}

TEST_F(RewindTest, TheFirstAnswerTooFromRevisionZero) {
  const Completion first = Say("s", "abc d", 1);
  EXPECT_EQ(first.started.revision(), 0u);
  EXPECT_EQ(Rewind("s", 0).tokens(), 0u);
  ExpectSame(Say("s", "abc d", 1), first);
}

TEST_F(RewindTest, CheckpointsAreListedWithTheirSizes) {
  Say("s", "abc d", 1);
  Say("s", "cc", 2);
  Say("s", "d", 3);
  const v1::Session session = Get("s");
  ASSERT_EQ(session.checkpoints_size(), 2);
  uint64_t bytes = 0;
  for (int i = 0; i < 2; ++i) {
    const v1::Checkpoint& checkpoint = session.checkpoints(i);
    EXPECT_EQ(checkpoint.revision(), static_cast<uint64_t>(i + 1));
    EXPECT_EQ(checkpoint.tokens(), i == 0 ? 23u : 44u);
    EXPECT_GT(checkpoint.snapshot_bytes(), 100u);
    EXPECT_GE(checkpoint.unix_ms(), session.created_unix_ms());
    EXPECT_LE(checkpoint.unix_ms(), session.updated_unix_ms());
    bytes += checkpoint.snapshot_bytes();
  }
  EXPECT_EQ(session.checkpoint_bytes(), bytes);
  EXPECT_EQ(Rewind("s", 1).checkpoints_size(), 3);
  const auto page =
      Call<v1::ListSessionsResponse>(&Stub::List, v1::ListSessionsRequest());
  EXPECT_EQ(page.sessions(0).checkpoints_size(), 0);
  EXPECT_GT(page.sessions(0).checkpoint_bytes(), bytes);
}

TEST_F(RewindTest, AnImpossibleRewindIsRefusedByName) {
  Say("s", "abc d", 1);
  Say("s", "cc", 2);
  Rewind("s", 7, grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_THAT(status_.error_message(),
              HasSubstr("revision 7 is not kept; there is 0..2"));
  EXPECT_EQ(Get("s").revision(), 2u);
  Rewind("nobody", 1, grpc::StatusCode::NOT_FOUND);
  Rewind("../s", 1, grpc::StatusCode::INVALID_ARGUMENT);
  v1::RewindSessionRequest request = Named<v1::RewindSessionRequest>("s");
  request.set_revision(1);
  request.set_expected_revision(1);
  Call<v1::Session>(&Stub::Rewind, request, grpc::StatusCode::ABORTED);
  request.set_expected_revision(2);
  EXPECT_EQ(Call<v1::Session>(&Stub::Rewind, request).revision(), 3u);
}

TEST_F(RewindTest, IsAbortedWhileATurnRuns) {
  Say("s", "abc", 1);
  server_.gate().Limit(3);
  grpc::ClientContext context;
  auto reader =
      server_.inference().Generate(&context, SessionRequest("s", "cc", 50));
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));  // it has the session
  server_.gate().AwaitBlocked();
  Rewind("s", 1, grpc::StatusCode::ABORTED);
  EXPECT_THAT(status_.error_message(), HasSubstr("a turn is running"));
  server_.gate().Open();
  while (reader->Read(&message)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(Rewind("s", 1).revision(), 3u);
}

}  // namespace
}  // namespace reprise
