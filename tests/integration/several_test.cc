// Several completions of one session, and what becomes of a turn that is
// cancelled or comes at another revision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/integration/sessions_fixture.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;

class SeveralTest : public SessionsTest {
 protected:
  // Token ids of each completion.
  static std::map<uint32_t, std::vector<int32_t>> ByIndex(
      const Completion& completion) {
    std::map<uint32_t, std::vector<int32_t>> ids;
    for (const v1::GenerateResponse& message : completion.messages) {
      for (const int32_t id : message.delta().token_ids()) {
        ids[message.delta().index()].push_back(id);
      }
    }
    return ids;
  }
};

TEST_F(SeveralTest, AnswersOfASessionLeaveItAsItWasAndOneMayBeCommitted) {
  Turn("s", "abc d", 5);
  v1::GenerateRequest request = SessionRequest("s", "cc", 20);
  request.set_n(3);
  request.set_commit(v1::COMMIT_POLICY_NEVER);
  const Completion several = Generate(server_.inference(), request);
  ASSERT_TRUE(several.status.ok()) << several.status.error_message();
  auto answers = ByIndex(several);
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_NE(answers[0], answers[1]);
  EXPECT_EQ(Get("s").revision(), 1u);
  EXPECT_EQ(server_.manager().num_slots(), 8);
  // The seeds are in a row from the first.
  request.clear_n();
  request.clear_commit();
  request.mutable_sampling()->set_seed(several.started.seed() + 2);
  const Completion chosen = Generate(server_.inference(), request);
  EXPECT_EQ(chosen.token_ids, answers[2]);
  EXPECT_EQ(chosen.finished.at(0).revision(), 2u);
}

TEST_F(SeveralTest, TheyCannotAllBeTheNextTurn) {
  v1::GenerateRequest request = SessionRequest("s", "cc", 5);
  request.set_n(2);
  const Completion refused = Generate(server_.inference(), request);
  EXPECT_EQ(refused.status.error_code(), kInvalidArgument);
  EXPECT_THAT(refused.status.error_message(),
              HasSubstr("n: 2 completions cannot all be the session's next "
                        "turn; set commit to COMMIT_POLICY_NEVER"));
  Get("s", kNotFound);
}

TEST_F(SeveralTest, AnAppendMayExpectARevisionToo) {
  Turn("s", "abc d", 5);
  v1::AppendRequest request;
  request.set_session_id("s");
  request.set_text("cc");
  request.set_expected_revision(2);
  Call<v1::AppendResponse>(&Stub::Append, request, kAborted);
  EXPECT_THAT(status_.error_message(),
              HasSubstr("is at revision 1, expected_revision is 2"));
  EXPECT_EQ(Get("s").revision(), 1u);
  request.set_expected_revision(1);
  EXPECT_EQ(
      Call<v1::AppendResponse>(&Stub::Append, request).session().revision(),
      2u);
  request.set_session_id("new");
  request.set_create_session(true);
  Call<v1::AppendResponse>(&Stub::Append, request, kAborted);
  request.set_expected_revision(0);
  Call<v1::AppendResponse>(&Stub::Append, request);
}

TEST_F(SeveralTest, AForkMayExpectARevisionToo) {
  Turn("s", "abc d", 5);
  v1::ForkSessionRequest request = Named<v1::ForkSessionRequest>("s");
  request.set_new_id("t");
  request.set_expected_revision(2);
  Call<v1::Session>(&Stub::Fork, request, kAborted);
  Get("t", kNotFound);
  request.set_expected_revision(1);
  EXPECT_EQ(Call<v1::Session>(&Stub::Fork, request).revision(), 1u);
}

}  // namespace
}  // namespace reprise
