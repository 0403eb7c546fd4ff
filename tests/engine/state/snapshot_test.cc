#include "engine/state/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/base/bytes.h"
#include "tests/engine/state/resealed.h"

namespace reprise::snapshot_test {
namespace {

using ::testing::HasSubstr;
using enum absl::StatusCode;

constexpr int64_t kVocabSize = 100;
// Offsets of the header, as docs/snapshot_format.md gives them.
constexpr size_t kVersionAt = 4;
constexpr size_t kLengthAt = 8;
constexpr size_t kPositionAt = 48;
constexpr size_t kPendingTokenAt = 56;
constexpr size_t kEncodingAt = 60;
constexpr size_t kNumOccurrencesAt = 72;
constexpr size_t kNumWindowAt = 76;
constexpr size_t kWindowLimitAt = 80;
constexpr size_t kPendingTextAt = 84;
constexpr size_t kNumFieldsAt = 88;
constexpr size_t kOccurrencesAt = 92;

class SnapshotTest : public ::testing::Test {
 protected:
  SnapshotTest() {
    layout_.Add("0.kv", {2, 5});
    layout_.Add("1.kv", {3});
    fingerprints_ = {/*model=*/11, layout_.fingerprint(), /*tokenizer=*/33};
    slot_.assign(layout_.slot_bytes(), std::byte{0});
    SetState(0, 3, 1.25f);
    SetState(1, 2, -7.5f);
    record_.revision = 9;
    record_.position = 20;
    record_.pending_token = 42;
    record_.sampler.draws = 5;
    record_.sampler.occurrences = {{3, 1.0f, 4}, {42, 2.5f, 20}};
    record_.sampler.window = {3, 42};
    record_.sampler.window_limit = 8;
    record_.pending_text = "\xc3";
  }

  void SetState(int field, int64_t element, float value) {
    std::memcpy(
        slot_.data() + layout_.fields()[field].offset + element * sizeof(float),
        &value, sizeof(value));
  }

  std::string Encode() const {
    return EncodeSnapshot(fingerprints_, record_, layout_, slot_);
  }

  // The snapshot with `value` at `offset`, and a checksum that fits again.
  template <typename T>
  std::string Patched(size_t offset, T value) const {
    std::string blob = Encode();
    std::memcpy(blob.data() + offset, &value, sizeof(value));
    return Resealed(std::move(blob));
  }

  // Whatever is written lies in the fields and is the state's.
  void ExpectPartOf(std::vector<std::byte> slot,
                    const std::vector<std::byte>& before) const {
    for (const StateField& field : layout_.fields()) {
      const auto end = static_cast<size_t>(field.offset) +
                       static_cast<size_t>(field.elements) * sizeof(float);
      for (auto i = static_cast<size_t>(field.offset); i < end; ++i) {
        if (slot[i] == slot_[i]) slot[i] = before[i];
      }
    }
    EXPECT_EQ(slot, before);
  }

  // The status of decoding; if it is an error, the slot must be untouched, but
  // for what came before a number that is not finite.
  absl::Status Decode(std::string_view blob,
                      int64_t vocab_size = kVocabSize) const {
    std::vector<std::byte> slot(layout_.slot_bytes(), std::byte{0x5a});
    const std::vector<std::byte> before = slot;
    // A copy of exactly these bytes, so that AddressSanitizer sees any read
    // past the end.
    const std::vector<char> exact(blob.begin(), blob.end());
    const absl::Status status =
        DecodeSnapshot({exact.data(), exact.size()}, fingerprints_, layout_,
                       vocab_size, slot)
            .status();
    if (!status.ok()) {
      if (SnapshotFaultOf(status) == SnapshotFault::kNonfinite) {
        ExpectPartOf(slot, before);
      } else {
        EXPECT_EQ(slot, before) << status;
      }
      EXPECT_TRUE(SnapshotFaultOf(status).has_value()) << status;
    }
    return status;
  }

  void ExpectRefused(std::string_view blob, absl::StatusCode code,
                     SnapshotFault fault, const std::string& text) const {
    const absl::Status status = Decode(blob);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(SnapshotFaultOf(status), fault) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  StateLayout layout_;
  ModelFingerprints fingerprints_;
  SessionRecord record_;
  std::vector<std::byte> slot_;
};

// Where the ring of the latest tokens begins is no part of a session.
TEST_F(SnapshotTest, AWindowThatHasTurnedIsEncodedInOrder) {
  record_.sampler.window = {3, 42, 7};
  record_.sampler.window_limit = 3;
  const std::string in_order = Encode();
  record_.sampler.window = {42, 7, 3};
  record_.sampler.window_oldest = 2;
  EXPECT_EQ(Encode(), in_order);
}

TEST_F(SnapshotTest, RoundTripKeepsEveryBit) {
  std::vector<std::byte> slot(layout_.slot_bytes(), std::byte{0});
  const auto decoded =
      DecodeSnapshot(Encode(), fingerprints_, layout_, kVocabSize, slot);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(slot, slot_);
  EXPECT_EQ(decoded->revision, 9u);
  EXPECT_EQ(decoded->position, 20);
  EXPECT_EQ(decoded->pending_token, 42);
  EXPECT_EQ(decoded->sampler.draws, 5u);
  ASSERT_EQ(decoded->sampler.occurrences.size(), 2u);
  EXPECT_EQ(decoded->sampler.occurrences[1].weight, 2.5f);
  EXPECT_EQ(decoded->sampler.window, (std::vector<int32_t>{3, 42}));
  EXPECT_EQ(decoded->sampler.window_limit, 8);
  EXPECT_EQ(decoded->pending_text, "\xc3");
  EXPECT_EQ(EncodeSnapshot(fingerprints_, *decoded, layout_, slot), Encode());
}

TEST_F(SnapshotTest, WhatLiesInTheGapsOfASlotIsNotEncoded) {
  const std::string blob = Encode();
  slot_.back() = std::byte{1};  // the last field has 12 bytes of 64
  EXPECT_EQ(Encode(), blob);
}

TEST_F(SnapshotTest, RefusesEveryFlippedByte) {
  const std::string blob = Encode();
  for (size_t i = 0; i < blob.size(); ++i) {
    for (const char flip : {'\x01', '\x80', '\xff'}) {
      std::string damaged = blob;
      damaged[i] ^= flip;
      const bool version = i >= kVersionAt && i < kVersionAt + 4;
      EXPECT_EQ(Decode(damaged).code(),
                version ? kFailedPrecondition : kDataLoss)
          << "byte " << i;
    }
  }
}

TEST_F(SnapshotTest, RefusesEveryCutAndEveryExtraByte) {
  const std::string blob = Encode();
  for (size_t size = 0; size < blob.size(); ++size) {
    ExpectRefused(blob.substr(0, size), kDataLoss, SnapshotFault::kTruncated,
                  "bytes");
  }
  ExpectRefused(blob + '\0', kDataLoss, SnapshotFault::kTruncated, "says");
}

TEST_F(SnapshotTest, ACutThatWasSealedAgainIsStillRefused) {
  const std::string blob = Encode();
  for (size_t size = kOccurrencesAt + 4; size < blob.size(); ++size) {
    std::string cut = blob.substr(0, size);
    const uint64_t length = size;
    std::memcpy(cut.data() + kLengthAt, &length, sizeof(length));
    EXPECT_EQ(Decode(Resealed(cut)).code(), kDataLoss) << size;
  }
}

TEST_F(SnapshotTest, RefusesOtherVersionsBeforeTheChecksum) {
  std::string blob = Encode();
  blob[kVersionAt] = 3;
  ExpectRefused(blob, kFailedPrecondition, SnapshotFault::kVersion,
                "version is 3, this program reads 1 to 2");
}

TEST_F(SnapshotTest, NamesTheFingerprintThatDiffers) {
  const std::string blob = Encode();
  const ModelFingerprints original = fingerprints_;
  fingerprints_.model = 12;
  ExpectRefused(blob, kFailedPrecondition, SnapshotFault::kModelMismatch,
                "model fingerprint is 000000000000000b, must be "
                "000000000000000c");
  fingerprints_ = original;
  fingerprints_.layout = 1;
  ExpectRefused(blob, kFailedPrecondition, SnapshotFault::kModelMismatch,
                "snapshot: layout fingerprint is");
  fingerprints_ = original;
  fingerprints_.tokenizer = 2;
  ExpectRefused(blob, kFailedPrecondition, SnapshotFault::kModelMismatch,
                "snapshot: tokenizer fingerprint is");
  fingerprints_.model = 1;
  ExpectRefused(blob, kFailedPrecondition, SnapshotFault::kModelMismatch,
                "0000000000000001; tokenizer");
}

TEST_F(SnapshotTest, RefusesCountsThatTheBytesDoNotBack) {
  for (const size_t offset :
       {kNumOccurrencesAt, kNumWindowAt, kPendingTextAt, kNumFieldsAt}) {
    for (const uint32_t count :
         {0xffffffffu, 0x40000000u, 0x10000000u, 3u, 0u}) {
      EXPECT_EQ(Decode(Patched(offset, count)).code(), kDataLoss)
          << offset << " " << count;
    }
  }
  ExpectRefused(Patched(kLengthAt, uint64_t{4} << 30), kDataLoss,
                SnapshotFault::kTruncated, "says 4294967296");
  ExpectRefused(Patched(kNumFieldsAt, uint32_t{3}), kDataLoss,
                SnapshotFault::kShape, "has 3 state fields, must have 2");
}

TEST_F(SnapshotTest, RefusesFieldsThatBreakARule) {
  constexpr auto kShape = SnapshotFault::kShape;
  ExpectRefused(Patched(kPendingTokenAt, int32_t{100}), kDataLoss, kShape,
                "pending_token is 100, outside the vocabulary of 100");
  ExpectRefused(Patched(kPendingTokenAt, int32_t{-2}), kDataLoss, kShape,
                "pending_token is -2");
  ExpectRefused(Patched(kPendingTokenAt, int32_t{-1}), kDataLoss, kShape,
                "no pending_token at position 20");
  ExpectRefused(Patched(kPositionAt, int64_t{-1}), kDataLoss, kShape,
                "position is -1");
  ExpectRefused(Patched(kPositionAt, std::numeric_limits<int64_t>::max()),
                kDataLoss, kShape, "position is 9223372036854775807");
  for (const int64_t position : {kMaxPosition + 1, int64_t{1} << 62}) {
    ExpectRefused(Patched(kPositionAt, position), kDataLoss, kShape,
                  "must be 0..281474976710656");
  }
  ExpectRefused(Patched(kPositionAt, int64_t{19}), kDataLoss, kShape,
                "occurrences[1] is at position 20 of 20 tokens");
  ExpectRefused(Patched(kEncodingAt, uint32_t{1}), kDataLoss, kShape,
                "encoding is 1");
  ExpectRefused(Patched(kWindowLimitAt, uint32_t{65537}), kDataLoss, kShape,
                "window_limit is 65537");
  ExpectRefused(Patched(kWindowLimitAt, uint32_t{1}), kDataLoss, kShape,
                "window has 2 tokens, at most 1");
  // The second occurrence's token, its position; a token of the window.
  ExpectRefused(Patched(kOccurrencesAt + 16, int32_t{3}), kDataLoss, kShape,
                "occurrences[1] has token 3 after 3");
  ExpectRefused(Patched(kOccurrencesAt + 16, int32_t{2}), kDataLoss, kShape,
                "must ascend");
  ExpectRefused(Patched(kOccurrencesAt + 16, int32_t{-5}), kDataLoss, kShape,
                "occurrence of token is -5");
  ExpectRefused(Patched(kOccurrencesAt + 8, int64_t{-1}), kDataLoss, kShape,
                "occurrences[0] is at position -1");
  ExpectRefused(Patched(kOccurrencesAt + 32, int32_t{1000}), kDataLoss, kShape,
                "window token is 1000");
  record_.pending_text = "abcd";
  ExpectRefused(Encode(), kDataLoss, kShape, "pending_text has 4 bytes");
}

TEST_F(SnapshotTest, RefusesATokenOutsideASmallerVocabulary) {
  EXPECT_TRUE(Decode(Encode(), /*vocab_size=*/43).ok());
  EXPECT_EQ(Decode(Encode(), /*vocab_size=*/42).code(), kDataLoss);
}

TEST_F(SnapshotTest, RefusesStateFieldsThatAreNotTheLayouts) {
  // The same fingerprint is claimed each time, so only the fields tell.
  const std::string blob = Encode();
  const auto refuse =
      [&](const std::vector<std::pair<std::string, std::vector<int64_t>>>&
              fields,
          const std::string& text) {
        StateLayout other;
        for (const auto& [name, shape] : fields) other.Add(name, shape);
        layout_ = other;
        ExpectRefused(blob, kDataLoss, SnapshotFault::kShape, text);
      };
  refuse({{"0.kv", {2, 5}}, {"1.kw", {3}}}, "\"1.kv\", must be 1.kw");
  refuse({{"0.kv", {5, 2}}, {"1.kv", {3}}}, "[2, 5], must be [5, 2]");
  refuse({{"0.kv", {10}}, {"1.kv", {3}}}, "has 2 dimensions, must have 1");
  refuse({{"0.kv", {2, 5}}}, "has 2 state fields, must have 1");
  refuse({{"0.kv", {2, 5}}, {"1.kv", {4}}}, "[3], must be [4]");
}

TEST_F(SnapshotTest, RefusesNumbersThatAreNotFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::nanf(""), inf, -inf}) {
    SetState(1, 2, bad);
    ExpectRefused(Encode(), kDataLoss, SnapshotFault::kNonfinite,
                  "state field 1.kv");
    SetState(1, 2, 0);
    record_.sampler.occurrences[0].weight = bad;
    ExpectRefused(Encode(), kDataLoss, SnapshotFault::kNonfinite, "weight");
    record_.sampler.occurrences[0].weight = 1;
  }
  EXPECT_TRUE(Decode(Encode()).ok());
}

TEST_F(SnapshotTest, FindsABadNumberAnywhereInALargeField) {
  StateLayout layout;
  layout.Add("0.kv", {10'000});  // more than is checked at a time
  layout_ = layout;
  fingerprints_.layout = layout.fingerprint();
  slot_.assign(layout_.slot_bytes(), std::byte{0});
  for (const int64_t element : {0, 255, 256, 999, 4095, 4096, 8192, 9999}) {
    SetState(0, element, std::nanf(""));
    EXPECT_EQ(Decode(Encode()).code(), kDataLoss) << element;
    SetState(0, element, std::numeric_limits<float>::max());
    EXPECT_TRUE(Decode(Encode()).ok()) << element;
  }
}

TEST_F(SnapshotTest, CheckSessionFindsWhatDecodingWouldRefuse) {
  const auto check = [this] {
    return CheckSession(record_, layout_, kVocabSize, slot_);
  };
  EXPECT_TRUE(check().ok());
  SetState(0, 1, std::nanf(""));
  EXPECT_EQ(check().code(), kInternal);
  EXPECT_EQ(SnapshotFaultOf(check()), SnapshotFault::kNonfinite);
  EXPECT_THAT(std::string(check().message()), HasSubstr("0.kv"));
  SetState(0, 1, 0);
  record_.pending_token.reset();
  EXPECT_EQ(check().code(), kInternal);
  EXPECT_EQ(SnapshotFaultOf(check()), SnapshotFault::kShape);
}

TEST_F(SnapshotTest, OtherErrorsHaveNoFault) {
  EXPECT_FALSE(SnapshotFaultOf(absl::DataLossError("x")).has_value());
  EXPECT_FALSE(SnapshotFaultOf(absl::OkStatus()).has_value());
}

}  // namespace
}  // namespace reprise::snapshot_test
