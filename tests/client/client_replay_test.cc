#include "client/client_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace reprise {
namespace {

using ::testing::HasSubstr;

v1::GenerateResponse Started(uint64_t revision, bool repeated = false,
                             uint64_t seed = 5) {
  v1::GenerateResponse message;
  message.mutable_started()->set_session_id("s");
  message.mutable_started()->set_revision(revision);
  message.mutable_started()->set_seed(seed);
  message.mutable_started()->set_model_fingerprint("m");
  message.mutable_started()->set_repeated(repeated);
  return message;
}

v1::GenerateResponse Delta(const std::string& text,
                           const std::vector<int32_t>& ids = {},
                           const std::vector<float>& logprobs = {},
                           uint32_t index = 0) {
  v1::GenerateResponse message;
  v1::Delta& delta = *message.mutable_delta();
  delta.set_index(index);
  delta.set_text(text);
  delta.mutable_token_ids()->Assign(ids.begin(), ids.end());
  for (const float logprob : logprobs) {
    delta.add_logprobs()->mutable_chosen()->set_logprob(logprob);
  }
  return message;
}

v1::GenerateResponse Finished(uint32_t index = 0) {
  v1::GenerateResponse message;
  message.mutable_finished()->set_index(index);
  return message;
}

class AnswerReplayTest : public ::testing::Test {
 protected:
  // What is told of it: "-" for nothing, "!" and the reason for an error.
  std::string Add(const v1::GenerateResponse& message) {
    const auto added = replay_->Add(message);
    if (!added.ok()) {
      EXPECT_TRUE(absl::IsDataLoss(added.status()));
      return "!" + std::string(added.status().message());
    }
    if (!added->has_value()) return "-";
    std::string told = (*added)->delta().text();
    for (const int32_t id : (*added)->delta().token_ids()) {
      told += "," + std::to_string(id);
    }
    for (const v1::TokenLogprobs& token : (*added)->delta().logprobs()) {
      told += ";" + std::to_string(static_cast<int>(token.chosen().logprob()));
    }
    if ((*added)->has_started()) told += "started";
    if ((*added)->has_finished()) told += "finished";
    return told;
  }

  std::optional<AnswerReplay> replay_{1};
};

TEST_F(AnswerReplayTest, WhatIsNewIsToldOnce) {
  replay_->Begin({});
  EXPECT_EQ(Add(Started(3)), "started");
  EXPECT_EQ(Add(Delta("ab", {1, 2}, {-1, -2})), "ab,1,2;-1;-2");
  EXPECT_EQ(Add(Delta("c", {3}, {-3})), "c,3;-3");
  replay_->Begin({});
  EXPECT_EQ(Add(Started(3)), "-");
  // Cut elsewhere.
  EXPECT_EQ(Add(Delta("a", {1}, {-1})), "-");
  EXPECT_EQ(Add(Delta("bcd", {2, 3, 4}, {-2, -3, -4})), "d,4;-4");
  EXPECT_EQ(Add(Delta("e", {5}, {-5})), "e,5;-5");
  EXPECT_FALSE(replay_->complete());
  EXPECT_EQ(Add(Finished()), "finished");
  EXPECT_TRUE(replay_->complete());
}

TEST_F(AnswerReplayTest, ATokenWithoutTextIsTold) {
  replay_->Begin({});
  EXPECT_EQ(Add(Delta("", {1})), ",1");
  EXPECT_EQ(Add(Delta("")), "");  // figures
  replay_->Begin({});
  EXPECT_EQ(Add(Delta("", {1})), "-");
  EXPECT_EQ(Add(Delta("", {2})), ",2");
}

TEST_F(AnswerReplayTest, ARecordedAnswerIsWholeAndHasNoLogprobs) {
  replay_->Begin({});
  Add(Started(3));
  Add(Delta("ab", {1, 2}, {-1, -2}));
  replay_->Begin({});
  EXPECT_EQ(Add(Started(3, /*repeated=*/true)), "-");
  EXPECT_EQ(Add(Delta("abcd", {1, 2, 3, 4})), "cd,3,4");
  EXPECT_EQ(Add(Finished()), "finished");
}

TEST_F(AnswerReplayTest, ADifferenceIsSaid) {
  const std::string no = "!the answer cannot be continued: ";
  replay_->Begin({});
  Add(Started(3));
  Add(Delta("abc", {1, 2}, {-1, -2}));
  replay_->Begin({});
  EXPECT_EQ(Add(Delta("ab", {1})), "-");
  EXPECT_EQ(Add(Delta("X", {2})),
            no + "text after byte 2 of what was heard is another one");
  replay_->Begin({});
  EXPECT_EQ(Add(Delta("ab", {9})),
            no + "token ids are other ones than were heard");
  replay_->Begin({});
  EXPECT_EQ(Add(Delta("ab", {1}, {-9})),
            no + "log-probabilities are other ones than were heard");
  replay_->Begin({});
  EXPECT_EQ(Add(Delta("ab", {1, 2})), "-");
  EXPECT_EQ(Add(Finished()),
            no + "it ends after 2 bytes, and 3 were heard before");
}

TEST_F(AnswerReplayTest, ItMustBeTheSameTurn) {
  replay_->Begin({});
  Add(Started(3));
  EXPECT_THAT(Add(Started(3, /*repeated=*/false, /*seed=*/6)),
              HasSubstr("begun with the seed 5, and this one has 6"));
  EXPECT_THAT(Add(Started(4)),
              HasSubstr("session s was at revision 3, and is at 4 now"));
  v1::GenerateResponse other = Started(3);
  other.mutable_started()->set_model_fingerprint("x");
  EXPECT_THAT(Add(other), HasSubstr("the model m, and this server has x"));
  replay_->Begin(5);  // rewound
  EXPECT_EQ(Add(Started(5)), "-");
  EXPECT_THAT(Add(Started(3)), HasSubstr("was at revision 5, and is at 3"));
}

TEST_F(AnswerReplayTest, CompletionsAreJoinedEachByItself) {
  replay_.emplace(2);
  replay_->Begin({});
  EXPECT_EQ(Add(Delta("a", {}, {}, 0)), "a");
  EXPECT_EQ(Add(Delta("x", {}, {}, 1)), "x");
  EXPECT_EQ(Add(Finished(1)), "finished");
  replay_->Begin({});
  EXPECT_EQ(Add(Delta("x", {}, {}, 1)), "-");
  EXPECT_EQ(Add(Delta("ab", {}, {}, 0)), "b");
  EXPECT_EQ(Add(Finished(1)), "-");
  EXPECT_FALSE(replay_->complete());
  EXPECT_EQ(Add(Finished(0)), "finished");
  EXPECT_TRUE(replay_->complete());
}

}  // namespace
}  // namespace reprise
