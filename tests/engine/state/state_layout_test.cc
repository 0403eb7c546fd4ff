#include "engine/state/state_layout.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace reprise {
namespace {

TEST(StateLayoutTest, FieldsStartAtMultiplesOf64) {
  StateLayout layout;
  EXPECT_EQ(layout.slot_bytes(), 0);
  EXPECT_EQ(layout.Add("0.kv", {4, 8}), 0);   // 128 bytes
  EXPECT_EQ(layout.Add("0.z", {3}), 128);     // 12 bytes, a gap of 52
  EXPECT_EQ(layout.Add("1.scale", {}), 192);  // 4 bytes, a gap of 60
  EXPECT_EQ(layout.slot_bytes(), 256);
  EXPECT_EQ(layout.payload_bytes(), 144);
  ASSERT_EQ(layout.fields().size(), 3u);
  EXPECT_EQ(layout.fields()[1].name, "0.z");
  EXPECT_EQ(layout.fields()[1].elements, 3);
  EXPECT_EQ(layout.fields()[1].offset, 128);
  EXPECT_EQ(layout.fields()[2].elements, 1);
}

// Computed by tests/testdata/snapshots/make_snapshots.py, whose hash gives the
// published FNV-1a values ("foobar": 85944171f73967e8).
TEST(StateLayoutTest, FingerprintIsTheDocumentedHash) {
  StateLayout layout;
  EXPECT_EQ(layout.fingerprint(), 0xcbf29ce484222325u);
  layout.Add("0.kv", {2, 2});
  EXPECT_EQ(layout.fingerprint(), 0x64c7c28c238d49f4u);
}

uint64_t FingerprintOf(
    const std::vector<std::pair<std::string, std::vector<int64_t>>>& fields) {
  StateLayout layout;
  for (const auto& [name, shape] : fields) layout.Add(name, shape);
  return layout.fingerprint();
}

TEST(StateLayoutTest, FingerprintTellsNamesShapesAndOrderApart) {
  const uint64_t base = FingerprintOf({{"a", {2, 3}}, {"b", {4}}});
  EXPECT_EQ(base, FingerprintOf({{"a", {2, 3}}, {"b", {4}}}));
  EXPECT_NE(base, FingerprintOf({{"b", {4}}, {"a", {2, 3}}}));
  EXPECT_NE(base, FingerprintOf({{"a", {3, 2}}, {"b", {4}}}));
  EXPECT_NE(base, FingerprintOf({{"a", {6}}, {"b", {4}}}));
  EXPECT_NE(base, FingerprintOf({{"a", {2, 3, 1}}, {"b", {4}}}));
  EXPECT_NE(base, FingerprintOf({{"ab", {2, 3}}, {"b", {4}}}));
  EXPECT_NE(base, FingerprintOf({{"a", {2, 3}}}));
}

TEST(StateLayoutTest, GrowingFieldsHavePagesOfTheirOwn) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  StateLayout layout(/*max_context=*/3 * page / 8);
  EXPECT_FALSE(layout.max_context().has_value());
  EXPECT_EQ(layout.Add("0.kv", {4}), 0);
  EXPECT_EQ(layout.AddContext("1.k", {2}), page);        // 3 pages
  EXPECT_EQ(layout.AddWindow("1.v", 5, {3}), 4 * page);  // 1 page
  EXPECT_EQ(layout.Add("2.kv", {4}), 5 * page);
  EXPECT_EQ(layout.AddContext("3.k", {1, 1}), 6 * page);  // 2 pages
  EXPECT_EQ(layout.slot_bytes(), 8 * page);
  EXPECT_EQ(layout.max_context(), 3 * page / 8);
  ASSERT_EQ(layout.growing().size(), 2u);
  EXPECT_EQ(layout.growing()[0].offset, page);
  EXPECT_EQ(layout.growing()[0].bytes, 4 * page);
  EXPECT_EQ(layout.growing()[1].offset, 6 * page);
  EXPECT_EQ(layout.growing()[1].bytes, 2 * page);
}

TEST(StateLayoutTest, PayloadGrowsWithThePosition) {
  StateLayout layout(/*max_context=*/100);
  layout.Add("0.kv", {4});           // 16 bytes
  layout.AddContext("1.k", {2, 3});  // 24 bytes a token
  layout.AddWindow("1.v", 5, {2});   // 8 bytes a token, up to 40
  EXPECT_EQ(layout.payload_bytes(), 16 + 40);
  EXPECT_EQ(layout.bytes_per_token(), 24);
  EXPECT_EQ(layout.PayloadBytesAt(0), 16);
  EXPECT_EQ(layout.PayloadBytesAt(3), 16 + 3 * 24 + 3 * 8);
  EXPECT_EQ(layout.PayloadBytesAt(50), 16 + 50 * 24 + 40);
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(layout.fields()[0].ShapeInUse(3), Shape({4}));
  EXPECT_EQ(layout.fields()[1].ShapeInUse(3), Shape({3, 2, 3}));
  EXPECT_EQ(layout.fields()[1].ShapeInUse(-1), Shape({0, 2, 3}));
  EXPECT_EQ(layout.fields()[1].ShapeInUse(101), Shape({100, 2, 3}));
  EXPECT_EQ(layout.fields()[2].ShapeInUse(50), Shape({5, 2}));
  EXPECT_EQ(layout.fields()[2].ElementsInUse(4), 8);
}

TEST(StateLayoutTest, FingerprintTellsGrowthApartAndIgnoresTheMaxContext) {
  StateLayout fixed(4), context(4), longer(8), window(4), wider(4);
  fixed.Add("a", {4, 2});
  context.AddContext("a", {2});
  longer.AddContext("a", {2});
  window.AddWindow("a", 4, {2});
  wider.AddWindow("a", 5, {2});
  EXPECT_EQ(context.fingerprint(), longer.fingerprint());
  EXPECT_NE(context.fingerprint(), fixed.fingerprint());
  EXPECT_NE(context.fingerprint(), window.fingerprint());
  EXPECT_NE(window.fingerprint(), fixed.fingerprint());
  EXPECT_NE(window.fingerprint(), wider.fingerprint());
}

TEST(StateLayoutDeathTest, RefusesANameTwiceAndAnEmptyDimension) {
  StateLayout layout;
  layout.Add("a", {1});
  EXPECT_DEATH(layout.Add("a", {2}), "CHECK failed");
  EXPECT_DEATH(layout.Add("b", {2, 0}), "CHECK failed");
}

TEST(StateLayoutTest, LeavesOutWhatIsTooLargeAndSaysSo) {
  StateLayout layout(/*max_context=*/int64_t{1} << 24);
  layout.Add("0.kv", {4});
  EXPECT_TRUE(layout.status().ok());
  // The limit is all of a slot, so that even this alone would not fit.
  layout.AddContext("1.k", {int64_t{1} << 24});
  EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(layout.status().message(),
            "the config makes the state of a session too large: field '1.k' "
            "of shape [16777216, 16777216] takes it above 1125899906842624 "
            "bytes, the limit");
  layout.Add("2.kv", {1 << 30, 1 << 30, 1 << 30, 1 << 30});
  layout.AddWindow("3.k", int64_t{1} << 62, {int64_t{1} << 62});
  EXPECT_EQ(layout.fields().size(), 1u);
  EXPECT_EQ(layout.slot_bytes(), 64);
  EXPECT_NE(layout.status().message().find("'1.k'"), std::string::npos);
}

TEST(StateLayoutTest, TakesASlotOfTheLimit) {
  StateLayout layout;
  layout.Add("a", {int64_t{1} << 24, int64_t{1} << 24});
  EXPECT_TRUE(layout.status().ok());
  EXPECT_EQ(layout.slot_bytes(), StateLayout::kMaxSlotBytes);
  layout.Add("b", {1});
  EXPECT_FALSE(layout.status().ok());
}

}  // namespace
}  // namespace reprise
