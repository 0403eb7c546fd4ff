// Version 2: rounded and compressed snapshots.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include "engine/base/bytes.h"
#include "engine/state/snapshot.h"
#include "engine/state/state_copy.h"
#include "engine/state/zstd_frame.h"
#include "tests/engine/state/resealed.h"

namespace reprise::snapshot_encoding_test {
namespace {

using ::testing::HasSubstr;
using enum absl::StatusCode;

constexpr int64_t kVocabSize = 100;
// Offsets in version 2, as docs/snapshot_format.md gives them.
constexpr size_t kVersionAt = 4;
constexpr size_t kLengthAt = 8;
constexpr size_t kEncodingAt = 40;
constexpr size_t kCompressionAt = 44;
constexpr size_t kContentBytesAt = 48;
constexpr size_t kContentAt = 56;
// Offsets in the content.
constexpr size_t kPositionAt = 8;
constexpr size_t kOccurrencesAt = 28;
constexpr size_t kWindowAt = 32;
constexpr size_t kTextAt = 40;

constexpr SnapshotEncoding kPlain;
constexpr SnapshotEncoding kZstd{StateEncoding::kF32, true};
constexpr SnapshotEncoding kBf16{StateEncoding::kBf16, false};
constexpr SnapshotEncoding kBf16Zstd{StateEncoding::kBf16, true};

// Overwrites the bytes at `offset`.
template <typename T>
void Patch(std::string& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

// With the length that it has now, too.
std::string ResealedAtLength(std::string blob) {
  Patch(blob, kLengthAt, uint64_t{blob.size()});
  return Resealed(std::move(blob));
}

class SnapshotEncodingTest : public ::testing::TestWithParam<SnapshotEncoding> {
 protected:
  SnapshotEncodingTest() : layout_(/*max_context=*/30) {
    layout_.Add("0.kv", {7, 9});
    layout_.AddContext("1.attn_k", {3});
    layout_.AddWindow("2.attn_k", 4, {5});
    fingerprints_ = {/*model=*/11, layout_.fingerprint(), /*tokenizer=*/33};
    slot_.assign(layout_.slot_bytes(), std::byte{0});
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (const StateField& field : layout_.fields()) {
      for (int64_t i = 0; i < field.elements; ++i) {
        const float value = normal(random);
        std::memcpy(slot_.data() + field.offset + i * 4, &value, 4);
      }
    }
    record_.revision = 9;
    record_.position = 20;
    record_.pending_token = 42;
    record_.sampler.draws = 5;
    record_.sampler.occurrences = {{3, 1.1f, 4}, {42, 2.7f, 20}};
    record_.sampler.window = {3, 42};
    record_.sampler.window_limit = 8;
    record_.pending_text = "\xc3";
  }

  std::string Encode(const SnapshotEncoding& encoding) const {
    return EncodeSnapshot(fingerprints_, record_, layout_, slot_, encoding);
  }

  // The status of decoding; if it is an error, the slot must be untouched, but
  // for what came before a number that is not finite.
  absl::Status Decode(std::string_view blob) const {
    std::vector<std::byte> slot(layout_.slot_bytes(), std::byte{0x5a});
    const std::vector<std::byte> before = slot;
    const std::vector<char> exact(blob.begin(), blob.end());
    const absl::Status status =
        DecodeSnapshot({exact.data(), exact.size()}, fingerprints_, layout_,
                       kVocabSize, slot)
            .status();
    EXPECT_EQ(status.ok(), !SnapshotFaultOf(status).has_value()) << status;
    EXPECT_TRUE(status.ok() || slot == before ||
                SnapshotFaultOf(status) == SnapshotFault::kNonfinite)
        << status;
    return status;
  }
  void ExpectRefused(std::string_view blob, absl::StatusCode code,
                     SnapshotFault fault, const std::string& text) const {
    const absl::Status status = Decode(blob);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(SnapshotFaultOf(status), fault) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  // A compressed snapshot of `content`, which it says to have `claimed` bytes.
  std::string Compressed(std::string_view content, uint64_t claimed) const {
    std::string blob = Encode(kZstd).substr(0, kContentAt);
    Patch(blob, kContentBytesAt, claimed);
    return ResealedAtLength(blob + ZstdCompress(content) + "0000");
  }

  StateLayout layout_;
  ModelFingerprints fingerprints_;
  SessionRecord record_;
  std::vector<std::byte> slot_;
};

INSTANTIATE_TEST_SUITE_P(Encodings, SnapshotEncodingTest,
                         ::testing::Values(kPlain, kZstd, kBf16, kBf16Zstd),
                         [](const auto& info) {
                           return std::string(info.param.exact() ? "f32"
                                                                 : "bf16") +
                                  (info.param.zstd ? "_zstd" : "");
                         });

TEST_P(SnapshotEncodingTest, RoundTripKeepsAllButTheRoundedBits) {
  const std::string blob = Encode(GetParam());
  std::vector<std::byte> slot(layout_.slot_bytes(), std::byte{0});
  SnapshotEncoding encoding;
  const auto decoded =
      DecodeSnapshot(blob, fingerprints_, layout_, kVocabSize, slot, &encoding);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(encoding, GetParam());
  EXPECT_EQ(decoded->position, 20);
  EXPECT_EQ(decoded->sampler.occurrences[1].weight, 2.7f);  // exact always
  EXPECT_EQ(decoded->pending_text, "\xc3");
  for (const StateField& field : layout_.fields()) {
    const auto want = FieldValues(field, record_.position, slot_.data());
    const auto got = FieldValues(field, record_.position, slot.data());
    for (size_t i = 0; i < want.size(); ++i) {
      const float allowed = encoding.exact() ? 0 : std::abs(want[i]) / 256;
      EXPECT_NEAR(got[i], want[i], allowed) << field.name;
    }
  }
  // What was rounded once stays so.
  EXPECT_EQ(EncodeSnapshot(fingerprints_, *decoded, layout_, slot, GetParam()),
            blob);
}

TEST_P(SnapshotEncodingTest, RefusesEveryFlippedBit) {
  const std::string blob = Encode(GetParam());
  for (size_t bit = 0; bit < blob.size() * 8; ++bit) {
    std::string damaged = blob;
    damaged[bit / 8] ^= static_cast<char>(1 << bit % 8);
    const absl::StatusCode code = Decode(damaged).code();
    const bool version = bit / 8 >= kVersionAt && bit / 8 < kVersionAt + 4;
    EXPECT_TRUE(code == kDataLoss || (version && code == kFailedPrecondition))
        << "bit " << bit;
  }
}

TEST_P(SnapshotEncodingTest, AFlippedBitWithAChecksumThatFitsDoesNoHarm) {
  const std::string blob = Encode(GetParam());
  for (size_t bit = 0; bit < (blob.size() - 4) * 8; ++bit) {
    std::string damaged = blob;
    damaged[bit / 8] ^= static_cast<char>(1 << bit % 8);
    Decode(ResealedAtLength(damaged)).IgnoreError();  // checks the slot
  }
}

TEST_P(SnapshotEncodingTest, RefusesEveryCutAndEveryExtraByte) {
  const std::string blob = Encode(GetParam());
  for (size_t size = 0; size < blob.size(); ++size) {
    ExpectRefused(blob.substr(0, size), kDataLoss, SnapshotFault::kTruncated,
                  "bytes");
    if (size < kContentAt + 4) continue;
    EXPECT_EQ(Decode(ResealedAtLength(blob.substr(0, size))).code(), kDataLoss);
  }
  ExpectRefused(blob + '\0', kDataLoss, SnapshotFault::kTruncated, "says");
  EXPECT_EQ(Decode(ResealedAtLength(blob + '\0')).code(), kDataLoss);
}

TEST_P(SnapshotEncodingTest, CanBeWrittenInAnyOtherWay) {
  for (const SnapshotEncoding& to : {kPlain, kZstd, kBf16, kBf16Zstd}) {
    const auto recoded = RecodeSnapshot(Encode(GetParam()), fingerprints_,
                                        layout_, kVocabSize, to);
    ASSERT_TRUE(recoded.ok()) << recoded.status();
    EXPECT_EQ(recoded->from, GetParam());
    EXPECT_EQ(recoded->record.revision, 9u);
    EXPECT_TRUE(Decode(recoded->bytes).ok());
    if (GetParam().exact() || !to.exact()) {
      EXPECT_EQ(recoded->bytes, Encode(to));
    }
  }
  EXPECT_EQ(RecodeSnapshot(Encode(GetParam()) + "x", fingerprints_, layout_,
                           kVocabSize, kPlain)
                .status()
                .code(),
            kDataLoss);
}

TEST_P(SnapshotEncodingTest, RefusesNumbersThatAreNotFinite) {
  // A value that no encoding changes, so that it can be found and replaced.
  std::vector<std::byte> zeros(layout_.slot_bytes(), std::byte{0});
  slot_ = zeros;
  const float marker = 1.5f;
  std::memcpy(slot_.data() + 8, &marker, sizeof(marker));
  SnapshotEncoding plain = GetParam();
  plain.zstd = false;
  std::string blob = Encode(plain);
  const std::string pattern =
      plain.exact() ? std::string("\0\0\xc0\x3f", 4) : "\xc0\x3f";
  const size_t at = blob.rfind(pattern);
  ASSERT_NE(at, std::string::npos);
  const auto bad = plain.exact() ? std::string("\0\0\x80\x7f", 4) : "\x80\xff";
  blob.replace(at, bad.size(), bad);
  blob = ResealedAtLength(blob);
  ExpectRefused(blob, kDataLoss, SnapshotFault::kNonfinite, "state field 0.kv");
  EXPECT_EQ(SnapshotFaultOf(
                RecodeSnapshot(blob, fingerprints_, layout_, kVocabSize, kPlain)
                    .status()),
            SnapshotFault::kNonfinite);
}

TEST_F(SnapshotEncodingTest, OnlyWhatVersion1CannotHoldIsVersion2) {
  EXPECT_EQ(Encode(kPlain)[kVersionAt], 1);
  for (const SnapshotEncoding& encoding : {kZstd, kBf16, kBf16Zstd}) {
    EXPECT_EQ(Encode(encoding)[kVersionAt], 2);
  }
}

TEST_F(SnapshotEncodingTest, Bf16HalvesTheTensorsAndNothingElse) {
  const size_t elements = 7 * 9 + 20 * 3 + 4 * 5;
  // Version 2 has 12 bytes more before its content, all in all.
  EXPECT_EQ(Encode(kPlain).size() - Encode(kBf16).size() + 12, elements * 2);
}

TEST_F(SnapshotEncodingTest, RefusesCodesThatDoNotExist) {
  for (const uint32_t code : {2u, 0xffffffffu}) {
    std::string blob = Encode(kBf16);
    Patch(blob, kEncodingAt, code);
    ExpectRefused(ResealedAtLength(blob), kDataLoss, SnapshotFault::kShape,
                  "must be 0 (f32) or 1 (bf16)");
    blob = Encode(kBf16);
    Patch(blob, kCompressionAt, code);
    ExpectRefused(ResealedAtLength(blob), kDataLoss, SnapshotFault::kShape,
                  "must be 0 (none) or 1 (zstd)");
  }
}

TEST_F(SnapshotEncodingTest, RefusesAContentLengthThatIsNotItsOwn) {
  for (const SnapshotEncoding& encoding : {kZstd, kBf16, kBf16Zstd}) {
    const std::string blob = Encode(encoding);
    uint64_t length = 0;
    std::memcpy(&length, blob.data() + kContentBytesAt, sizeof(length));
    for (const uint64_t claim :
         {uint64_t{0}, length - 1, length + 1, uint64_t{4} << 30,
          std::numeric_limits<uint64_t>::max()}) {
      std::string patched = blob;
      Patch(patched, kContentBytesAt, claim);
      ExpectRefused(ResealedAtLength(patched), kDataLoss, SnapshotFault::kShape,
                    "content has");
    }
  }
}

// A frame of some kilobytes that unpacks to much more.
TEST_F(SnapshotEncodingTest, RefusesBombs) {
  const std::string sound = Encode(kPlain);
  const std::string content =  // without version 1's encoding
      sound.substr(40, 20) + sound.substr(64, sound.size() - 64 - 4);
  ASSERT_TRUE(Decode(Compressed(content, content.size())).ok());
  const std::string zeros(16 << 20, '\0');
  const std::string bomb = content + zeros;
  ASSERT_LT(Compressed(bomb, bomb.size()).size(), 16u << 10);
  ExpectRefused(Compressed(bomb, bomb.size()), kDataLoss, SnapshotFault::kShape,
                "content has 16777");
  // One that does not say so.
  ExpectRefused(Compressed(bomb, content.size()), kDataLoss,
                SnapshotFault::kShape, "longer than it says");
  // A session with more tokens than the engine has room for is whole.
  std::string longer = content + zeros;
  Patch(longer, kPositionAt, int64_t{1} << 40);
  ExpectRefused(Compressed(longer, longer.size()), kFailedPrecondition,
                SnapshotFault::kModelMismatch, "max_context is 30");
  Patch(longer, kPositionAt, int64_t{-1});
  ExpectRefused(Compressed(longer, longer.size()), kDataLoss,
                SnapshotFault::kShape, "position is -1");
  for (const size_t count : {kOccurrencesAt, kWindowAt, kTextAt}) {
    std::string many = content + zeros;
    Patch(many, count, uint32_t{70'000});
    ExpectRefused(Compressed(many, many.size()), kDataLoss,
                  SnapshotFault::kShape, "70000");
  }
}

TEST_F(SnapshotEncodingTest, RefusesWhatIsNoFrame) {
  std::string blob = Encode(kZstd);
  Patch(blob, kContentAt, uint32_t{0});
  ExpectRefused(ResealedAtLength(blob), kDataLoss, SnapshotFault::kShape,
                "zstd");
  ExpectRefused(Compressed("", 0), kDataLoss, SnapshotFault::kShape,
                "too short");
}

TEST_F(SnapshotEncodingTest, NamesTheFingerprintThatDiffersFirst) {
  const std::string blob = Encode(kBf16Zstd);
  fingerprints_.model = 12;
  ExpectRefused(blob, kFailedPrecondition, SnapshotFault::kModelMismatch,
                "model fingerprint");
}

}  // namespace
}  // namespace reprise::snapshot_encoding_test
