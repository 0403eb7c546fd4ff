#include "server/session_outcome.h"

#include <gtest/gtest.h>

#include "engine/base/bytes.h"

namespace reprise {
namespace {

using enum absl::StatusCode;

TurnOutcome MakeOutcome() {
  TurnOutcome outcome;
  outcome.Add("some text", {1, 2, 3});
  outcome.reason = FinishReason::kStopString;
  outcome.matched_stop = "stop";
  outcome.matched_token = -7;
  outcome.usage = {
      .prompt_tokens = 4, .cached_tokens = 5, .completion_tokens = 6};
  outcome.seed = ~uint64_t{0};
  outcome.revision_before = 8;
  return outcome;
}

TEST(TurnOutcomeTest, RoundTrip) {
  const auto decoded = DecodeOutcome(EncodeOutcome(MakeOutcome()));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->text, "some text");
  EXPECT_EQ(decoded->token_ids, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(decoded->reason, FinishReason::kStopString);
  EXPECT_EQ(decoded->matched_stop, "stop");
  EXPECT_EQ(decoded->matched_token, -7);
  EXPECT_EQ(decoded->usage.prompt_tokens, 4);
  EXPECT_EQ(decoded->usage.cached_tokens, 5);
  EXPECT_EQ(decoded->usage.completion_tokens, 6);
  EXPECT_EQ(decoded->seed, ~uint64_t{0});
  EXPECT_EQ(decoded->revision_before, 8u);
  EXPECT_EQ(decoded->answer_bytes, 9u + 12);
  EXPECT_TRUE(decoded->whole());
}

TEST(TurnOutcomeTest, EveryReasonAndAMissingTokenAreKept) {
  for (const FinishReason reason :
       {FinishReason::kStop, FinishReason::kStopToken,
        FinishReason::kStopString, FinishReason::kLength,
        FinishReason::kTimeLimit, FinishReason::kCancelled}) {
    TurnOutcome outcome;
    outcome.reason = reason;
    const auto decoded = DecodeOutcome(EncodeOutcome(outcome));
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(decoded->reason, reason);
    EXPECT_FALSE(decoded->matched_token.has_value());
    EXPECT_EQ(decoded->text, "");
  }
}

TEST(TurnOutcomeTest, WhatIsTooLongIsNotKeptInPart) {
  TurnOutcome outcome;
  const std::string half(kMaxOutcomeBytes / 2, 'x');
  outcome.Add(half, {});
  outcome.Add(half, {});
  EXPECT_TRUE(outcome.whole());
  EXPECT_EQ(outcome.text.size(), kMaxOutcomeBytes);
  outcome.Add("", {5});
  EXPECT_FALSE(outcome.whole());
  outcome.Add("more", {6});
  const auto decoded = DecodeOutcome(EncodeOutcome(outcome));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->text, "");
  EXPECT_TRUE(decoded->token_ids.empty());
  EXPECT_FALSE(decoded->whole());
  EXPECT_EQ(decoded->answer_bytes, kMaxOutcomeBytes + 12);
}

TEST(TurnOutcomeTest, EveryFlippedByteAndEveryCutIsDataLoss) {
  const std::string bytes = EncodeOutcome(MakeOutcome());
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] ^= 0x10;
    EXPECT_EQ(DecodeOutcome(damaged).status().code(), kDataLoss);
    EXPECT_EQ(DecodeOutcome(bytes.substr(0, i)).status().code(), kDataLoss);
  }
  EXPECT_EQ(DecodeOutcome(bytes + "x").status().code(), kDataLoss);
}

// The bytes `payload` with the checksum that belongs to them.
std::string Sealed(std::string payload) {
  ByteWriter out;
  out.PutBytes(payload);
  out.Put(Crc32c(payload));
  return out.Take();
}

TEST(TurnOutcomeTest, WhatCannotBeIsRefusedWhateverItsChecksum) {
  const std::string bytes = EncodeOutcome(MakeOutcome());
  const std::string payload = bytes.substr(0, bytes.size() - 4);
  EXPECT_TRUE(DecodeOutcome(Sealed(payload)).ok());
  std::string newer = payload;
  newer[0] = 2;
  EXPECT_EQ(DecodeOutcome(Sealed(newer)).status().code(), kFailedPrecondition);
  std::string reason = payload;
  reason[1] = 6;
  EXPECT_EQ(DecodeOutcome(Sealed(reason)).status().code(), kDataLoss);
  std::string stop = payload;
  stop[5] = '\x7f';  // the length of the stop string, past the end
  EXPECT_EQ(DecodeOutcome(Sealed(stop)).status().code(), kDataLoss);
  EXPECT_EQ(DecodeOutcome(Sealed(payload + "x")).status().code(), kDataLoss);
}

}  // namespace
}  // namespace reprise
