#include "engine/state/state_layout.h"

#include <gtest/gtest.h>

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

TEST(StateLayoutDeathTest, RefusesANameTwiceAndAnEmptyDimension) {
  StateLayout layout;
  layout.Add("a", {1});
  EXPECT_DEATH(layout.Add("a", {2}), "CHECK failed");
  EXPECT_DEATH(layout.Add("b", {2, 0}), "CHECK failed");
  EXPECT_DEATH(layout.Add("c", {1 << 30, 1 << 30, 1 << 30}), "CHECK failed");
}

}  // namespace
}  // namespace reprise
