// The committed snapshots, which make_snapshots.py beside them wrote from the
// format page: they decode to known values and encode to the same bytes again.
#include <gtest/gtest.h>

#include <bit>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>

#include "engine/state/snapshot.h"
#include "engine/state/state_copy.h"

namespace reprise::snapshot_golden_test {
namespace {

constexpr uint64_t kModel = 0x1122334455667788;
constexpr uint64_t kTokenizer = 0x99aabbccddeeff00;
constexpr int64_t kVocabSize = 256;

std::string ReadBlob(const std::string& name) {
  std::ifstream file(REPRISE_TESTDATA "/snapshots/" + name, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << name;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::vector<float> Field(const StateLayout& layout, int index,
                         const std::vector<std::byte>& slot) {
  const StateField& field = layout.fields()[index];
  std::vector<float> values(field.elements);
  std::memcpy(values.data(), slot.data() + field.offset,
              values.size() * sizeof(float));
  return values;
}

// Decodes the blob into a zeroed `slot` and expects it to encode to itself. A
// compressed one may have another frame, by another compressor, so that it only
// is the same session.
SessionRecord DecodeBlob(const std::string& name, const StateLayout& layout,
                         std::vector<std::byte>& slot,
                         const SnapshotEncoding& written = {}) {
  const std::string blob = ReadBlob(name);
  const ModelFingerprints fingerprints{kModel, layout.fingerprint(),
                                       kTokenizer};
  slot.assign(layout.slot_bytes(), std::byte{0});
  SnapshotEncoding encoding;
  const absl::StatusOr<SessionRecord> record =
      DecodeSnapshot(blob, fingerprints, layout, kVocabSize, slot, &encoding);
  EXPECT_TRUE(record.ok()) << record.status();
  if (!record.ok()) return {};
  EXPECT_EQ(encoding, written);
  const std::string again =
      EncodeSnapshot(fingerprints, *record, layout, slot, encoding);
  if (!encoding.zstd) {
    EXPECT_EQ(again, blob);
  }
  std::vector<std::byte> second(slot.size(), std::byte{0});
  EXPECT_TRUE(
      DecodeSnapshot(again, fingerprints, layout, kVocabSize, second).ok());
  EXPECT_EQ(second, slot);
  return *record;
}

TEST(SnapshotGoldenTest, Version1Empty) {
  StateLayout layout;
  layout.Add("0.kv", {2, 2});
  std::vector<std::byte> slot;
  const SessionRecord record = DecodeBlob("v1_empty.rprs", layout, slot);
  EXPECT_EQ(record.revision, 0u);
  EXPECT_EQ(record.position, 0);
  EXPECT_FALSE(record.pending_token.has_value());
  EXPECT_EQ(record.sampler.draws, 0u);
  EXPECT_TRUE(record.sampler.occurrences.empty());
  EXPECT_TRUE(record.sampler.window.empty());
  EXPECT_EQ(record.sampler.window_limit, 0);
  EXPECT_EQ(record.pending_text, "");
  EXPECT_EQ(Field(layout, 0, slot), (std::vector<float>{0, 0, 0, 0}));
}

TEST(SnapshotGoldenTest, Version1Tiny) {
  StateLayout layout;
  layout.Add("0.kv", {2, 2});
  std::vector<std::byte> slot;
  const SessionRecord record = DecodeBlob("v1_tiny.rprs", layout, slot);
  EXPECT_EQ(record.revision, 1u);
  EXPECT_EQ(record.position, 1);
  EXPECT_EQ(record.pending_token, 7);
  EXPECT_EQ(record.sampler.draws, 1u);
  ASSERT_EQ(record.sampler.occurrences.size(), 1u);
  EXPECT_EQ(record.sampler.occurrences[0].token, 7);
  EXPECT_EQ(record.sampler.occurrences[0].weight, 1.5f);
  EXPECT_EQ(record.sampler.occurrences[0].position, 1);
  EXPECT_EQ(record.sampler.window, std::vector<int32_t>{7});
  EXPECT_EQ(record.sampler.window_limit, 4);
  EXPECT_EQ(record.pending_text, "\xe2\x82");
  EXPECT_EQ(Field(layout, 0, slot), (std::vector<float>{1, -2, 0.5, 0}));
}

// The hex bytes of lines like "    0004  01 00 00 00    version 1", each
// checked to stand at the offset that it says.
std::string ExampleOfTheFormatPage() {
  std::ifstream page(REPRISE_SOURCE_DIR "/docs/snapshot_format.md");
  std::string bytes;
  for (std::string line; std::getline(page, line);) {
    unsigned offset = 0;
    int start = 0;
    if (std::sscanf(line.c_str(), "    %4x  %n", &offset, &start) != 1 ||
        start != 10) {
      continue;
    }
    EXPECT_EQ(offset, bytes.size()) << line;
    for (size_t at = start; at < line.size() && line[at] != ' '; at += 3) {
      bytes.push_back(
          static_cast<char>(std::stoul(line.substr(at, 2), nullptr, 16)));
    }
  }
  return bytes;
}

TEST(SnapshotGoldenTest, TheExampleOfTheFormatPageIsTheTinyBlob) {
  EXPECT_EQ(ExampleOfTheFormatPage(), ReadBlob("v1_tiny.rprs"));
}

TEST(SnapshotGoldenTest, Version1Full) {
  StateLayout layout;
  layout.Add("0.recurrent", {2, 3, 1});
  layout.Add("0.normaliser", {3});
  layout.Add("10.scale", {});
  std::vector<std::byte> slot;
  const SessionRecord record = DecodeBlob("v1_full.rprs", layout, slot);
  EXPECT_EQ(record.revision, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(record.position, int64_t{1} << 40);
  EXPECT_EQ(record.pending_token, 255);
  EXPECT_EQ(record.sampler.draws, uint64_t{1} << 63);
  ASSERT_EQ(record.sampler.occurrences.size(), 3u);
  EXPECT_EQ(record.sampler.occurrences[0].weight, 0.0f);
  EXPECT_EQ(record.sampler.occurrences[1].token, 13);
  EXPECT_EQ(record.sampler.occurrences[1].weight, 0.75f);
  EXPECT_EQ(record.sampler.occurrences[2].position, int64_t{1} << 40);
  EXPECT_EQ(record.sampler.window, (std::vector<int32_t>{13, 0, 255}));
  EXPECT_EQ(record.sampler.window_limit, 65536);
  EXPECT_EQ(record.pending_text, "\xf0\x9f\x8d");
  EXPECT_EQ(Field(layout, 0, slot), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  const std::vector<float> edges = Field(layout, 1, slot);
  EXPECT_EQ(std::bit_cast<uint32_t>(edges[0]), 0x80000000u);  // -0
  EXPECT_EQ(edges[1], std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(edges[2], std::numeric_limits<float>::max());
  EXPECT_EQ(Field(layout, 2, slot), std::vector<float>{-0.25f});
}

TEST(SnapshotGoldenTest, Version1Growing) {
  StateLayout layout(/*max_context=*/8);
  layout.Add("0.kv", {2});
  layout.AddContext("1.attn_k", {1, 2});
  layout.AddContext("1.attn_v", {1, 2});
  layout.AddWindow("2.attn_k", 5, {1});
  layout.AddWindow("3.attn_k", 2, {1});
  std::vector<std::byte> slot;
  const SessionRecord record = DecodeBlob("v1_growing.rprs", layout, slot);
  EXPECT_EQ(record.position, 3);
  const auto values = [&](int field) {
    return FieldValues(layout.fields()[field], record.position, slot.data());
  };
  EXPECT_EQ(values(0), (std::vector<float>{1, 2}));
  EXPECT_EQ(values(1), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(values(2), (std::vector<float>{-1, -2, -3, -4, -5, -6}));
  EXPECT_EQ(values(3), (std::vector<float>{10, 20, 30}));
  EXPECT_EQ(values(4), (std::vector<float>{20, 30}));  // oldest first
}

TEST(SnapshotGoldenTest, Version2Bf16) {
  StateLayout layout;
  layout.Add("0.kv", {2, 4});
  layout.AddContext("1.attn_k", {1});
  std::vector<std::byte> slot;
  const SessionRecord record =
      DecodeBlob("v2_bf16.rprs", layout, slot, {StateEncoding::kBf16, false});
  EXPECT_EQ(record.revision, 3u);
  EXPECT_EQ(record.position, 2);
  EXPECT_EQ(record.pending_token, 8);
  EXPECT_EQ(record.sampler.occurrences.at(0).weight, 0.1f);  // not rounded
  EXPECT_EQ(record.sampler.window, (std::vector<int32_t>{1, 8}));
  EXPECT_EQ(record.pending_text, "\xc3");
  // Eight bits: 0.1 is 205 / 2^11, 2.3 is 147 / 2^6; 1 + 1/256 and 1 + 3/256
  // lie halfway and go to 1 and 1 + 4/256.
  const std::vector<float> values = Field(layout, 0, slot);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], 205.0f / 2048);
  EXPECT_EQ(values[2], -147.0f / 64);
  EXPECT_EQ(values[3], 1.0f);
  EXPECT_EQ(values[4], 1.0f + 4.0f / 256);
  EXPECT_EQ(std::bit_cast<uint32_t>(values[5]), 0x80000000u);  // -0
  EXPECT_EQ(values[6], std::bit_cast<float>(0x7f7f0000u));
  EXPECT_EQ(std::bit_cast<uint32_t>(values[7]), 0x80000000u);
  EXPECT_EQ(FieldValues(layout.fields()[1], record.position, slot.data()),
            (std::vector<float>{0.25f, 171.0f / 512}));
}

TEST(SnapshotGoldenTest, Version2Compressed) {
  StateLayout layout;
  layout.Add("0.kv", {2, 2});
  layout.Add("1.kv", {8, 8});
  for (const StateEncoding elements :
       {StateEncoding::kF32, StateEncoding::kBf16}) {
    const bool exact = elements == StateEncoding::kF32;
    std::vector<std::byte> slot;
    const SessionRecord record =
        DecodeBlob(exact ? "v2_zstd.rprs" : "v2_bf16_zstd.rprs", layout, slot,
                   {elements, true});
    EXPECT_EQ(record.revision, 1u);
    EXPECT_EQ(record.pending_token, 7);
    EXPECT_EQ(Field(layout, 0, slot),
              (std::vector<float>{1, -2, exact ? 0.5f : 205.0f / 2048, 0}));
    EXPECT_EQ(Field(layout, 1, slot), std::vector<float>(64, 0));
  }
}

}  // namespace
}  // namespace reprise::snapshot_golden_test
