// Snapshots of states that grow with their session.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/base/bytes.h"
#include "engine/state/snapshot.h"
#include "tests/engine/state/resealed.h"

namespace reprise::snapshot_growing_test {
namespace {

using ::testing::HasSubstr;
using enum absl::StatusCode;

constexpr int64_t kVocabSize = 100;
constexpr int64_t kMaxContext = 40;
constexpr size_t kVersionAt = 4;
constexpr size_t kPositionAt = 48;

StateLayout LayoutFor(int64_t max_context) {
  StateLayout layout(max_context);
  layout.Add("0.kv", {3});
  layout.AddContext("1.attn_k", {2, 2});
  layout.AddContext("1.attn_v", {2, 2});
  layout.AddWindow("2.attn_k", 6, {2});
  return layout;
}

// Every number of the slot is one that no other has.
std::vector<std::byte> FilledSlot(const StateLayout& layout) {
  std::vector<std::byte> slot(static_cast<size_t>(layout.slot_bytes()));
  float next = 1;
  for (const StateField& field : layout.fields()) {
    for (int64_t i = 0; i < field.elements; ++i, ++next) {
      std::memcpy(slot.data() + field.offset + 4 * i, &next, 4);
    }
  }
  return slot;
}

class GrowingSnapshotTest : public ::testing::Test {
 protected:
  GrowingSnapshotTest() { SetPosition(9); }

  void SetPosition(int64_t position) {
    record_.position = position;
    record_.pending_token.reset();
    if (position > 0) record_.pending_token = 5;
  }
  std::string Encode() const {
    return EncodeSnapshot(fingerprints_, record_, layout_, slot_);
  }
  // The status of decoding; on an error, the slot must be untouched, but for
  // what came before a number that is not finite.
  absl::Status Decode(std::string_view blob, const StateLayout& layout) const {
    std::vector<std::byte> slot(static_cast<size_t>(layout.slot_bytes()),
                                std::byte{0x5a});
    const std::vector<std::byte> before = slot;
    const std::vector<char> exact(blob.begin(), blob.end());
    const absl::Status status =
        DecodeSnapshot({exact.data(), exact.size()}, fingerprints_, layout,
                       kVocabSize, slot)
            .status();
    EXPECT_TRUE(status.ok() || slot == before ||
                SnapshotFaultOf(status) == SnapshotFault::kNonfinite)
        << status;
    EXPECT_EQ(status.ok(), !SnapshotFaultOf(status).has_value()) << status;
    return status;
  }

  const StateLayout layout_ = LayoutFor(kMaxContext);
  const ModelFingerprints fingerprints_{11, layout_.fingerprint(), 33};
  const std::vector<std::byte> slot_ = FilledSlot(layout_);
  SessionRecord record_;
};

TEST_F(GrowingSnapshotTest, SizeGrowsByWhatATokenAdds) {
  SetPosition(0);
  const int64_t empty = std::ssize(Encode());
  for (const int64_t position : {1, 5, 6, 7, 39, 40}) {
    SetPosition(position);
    EXPECT_EQ(std::ssize(Encode()) - empty,
              position * 32 + std::min<int64_t>(position, 6) * 8);
  }
}

TEST_F(GrowingSnapshotTest, RoundTripsAtEveryPosition) {
  for (int64_t position = 0; position <= kMaxContext; ++position) {
    SetPosition(position);
    const std::string blob = Encode();
    std::vector<std::byte> slot(slot_.size());
    const auto record =
        DecodeSnapshot(blob, fingerprints_, layout_, kVocabSize, slot);
    ASSERT_TRUE(record.ok()) << record.status();
    EXPECT_EQ(record->position, position);
    for (const StateField& field : layout_.fields()) {
      const size_t used =
          4 * static_cast<size_t>(field.ElementsInUse(position));
      EXPECT_EQ(std::memcmp(slot.data() + field.offset,
                            slot_.data() + field.offset, used),
                0);
      const auto rest = slot.begin() + field.offset + used;
      EXPECT_EQ(
          std::count(rest, slot.begin() + field.offset + 4 * field.elements,
                     std::byte{0}),
          4 * field.elements - static_cast<int64_t>(used));
    }
    EXPECT_EQ(EncodeSnapshot(fingerprints_, *record, layout_, slot), blob);
  }
}

TEST_F(GrowingSnapshotTest, FitsEveryEngineWithRoomForItsTokens) {
  const std::string blob = Encode();  // 9 tokens
  EXPECT_TRUE(Decode(blob, LayoutFor(9)).ok());
  EXPECT_TRUE(Decode(blob, LayoutFor(100)).ok());
  const absl::Status status = Decode(blob, LayoutFor(8));
  EXPECT_EQ(status.code(), kFailedPrecondition);
  EXPECT_EQ(SnapshotFaultOf(status), SnapshotFault::kModelMismatch);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("position is 9, this engine's max_context is 8"));
}

TEST_F(GrowingSnapshotTest, RefusesEveryFlippedByteAndEveryCut) {
  const std::string blob = Encode();
  for (size_t i = 0; i < blob.size(); ++i) {
    std::string damaged = blob;
    damaged[i] ^= '\x41';
    const bool version = i >= kVersionAt && i < kVersionAt + 4;
    EXPECT_EQ(Decode(damaged, layout_).code(),
              version ? kFailedPrecondition : kDataLoss)
        << "byte " << i;
    EXPECT_EQ(Decode(blob.substr(0, i), layout_).code(), kDataLoss);
  }
}

// Behind a checksum that fits: nothing may crash, and whatever is accepted must
// be a whole session.
TEST_F(GrowingSnapshotTest, SealedDamageIsRefusedOrEncodesToItself) {
  const std::string blob = Encode();
  int accepted = 0;
  for (size_t i = 0; i + 4 < blob.size(); ++i) {
    for (const char flip : {'\x01', '\x10', '\x80'}) {
      std::string damaged = blob;
      damaged[i] ^= flip;
      damaged = Resealed(std::move(damaged));
      std::vector<std::byte> slot(slot_.size());
      const auto record =
          DecodeSnapshot(damaged, fingerprints_, layout_, kVocabSize, slot);
      if (!record.ok()) continue;
      ++accepted;
      EXPECT_EQ(EncodeSnapshot(fingerprints_, *record, layout_, slot), damaged)
          << "byte " << i;
    }
  }
  EXPECT_GT(accepted, 0);  // other numbers in the state
}

TEST_F(GrowingSnapshotTest, RefusesAPositionThatIsNotTheNumberOfRows) {
  for (const int64_t position :
       {int64_t{0}, int64_t{8}, int64_t{10}, kMaxContext, kMaxContext + 1,
        int64_t{-1}, std::numeric_limits<int64_t>::max(),
        std::numeric_limits<int64_t>::min()}) {
    std::string blob = Encode();
    std::memcpy(blob.data() + kPositionAt, &position, sizeof(position));
    const absl::Status status = Decode(Resealed(blob), layout_);
    EXPECT_EQ(status.code(),
              position > kMaxContext ? kFailedPrecondition : kDataLoss)
        << position << " " << status;
  }
}

TEST_F(GrowingSnapshotTest, OnlyNumbersInUseMustBeFinite) {
  std::vector<std::byte> slot = slot_;
  const StateField& keys = layout_.fields()[1];
  const float bad = std::nanf("");
  std::memcpy(slot.data() + keys.offset + 4 * keys.ElementsInUse(9), &bad, 4);
  EXPECT_TRUE(CheckSession(record_, layout_, kVocabSize, slot).ok());
  std::memcpy(slot.data() + keys.offset + 4 * keys.ElementsInUse(9) - 4, &bad,
              4);
  const absl::Status status = CheckSession(record_, layout_, kVocabSize, slot);
  EXPECT_EQ(status.code(), kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("1.attn_k"));
  EXPECT_EQ(
      Decode(EncodeSnapshot(fingerprints_, record_, layout_, slot), layout_)
          .code(),
      kDataLoss);
}

TEST_F(GrowingSnapshotTest, CheckSessionRefusesMoreTokensThanTheContext) {
  SetPosition(kMaxContext + 1);
  const absl::Status status = CheckSession(record_, layout_, kVocabSize, slot_);
  EXPECT_EQ(status.code(), kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_context is 40"));
}

}  // namespace
}  // namespace reprise::snapshot_growing_test
