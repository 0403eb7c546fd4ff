#include "engine/state/state_elements.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace reprise {
namespace {

uint16_t Rounded(float value) {
  uint16_t bits = 0;
  ConvertElements(&value, StateEncoding::kF32, 1, StateEncoding::kBf16, &bits);
  return bits;
}

float Widened(uint16_t bits) {
  float value = 0;
  ConvertElements(&bits, StateEncoding::kBf16, 1, StateEncoding::kF32, &value);
  return value;
}

TEST(StateElementsTest, EveryBf16NumberComesBackAsItWas) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto narrow = static_cast<uint16_t>(bits);
    if (!AllFinite(&narrow, StateEncoding::kBf16, 1)) continue;
    EXPECT_EQ(Rounded(Widened(narrow)), narrow) << bits;
  }
}

// The reference works with distances of real numbers, not with bits.
TEST(StateElementsTest, RoundsToTheNearestAndTiesToEven) {
  std::mt19937 random(3);
  int ties = 0;
  for (int i = 0; i < 200'000; ++i) {
    uint32_t bits = random();
    if (i % 2 == 0) bits = (bits & 0xffff0000) | 0x8000;  // halfway
    const float value = std::bit_cast<float>(bits);
    if (!std::isfinite(value)) continue;
    const uint16_t got = Rounded(value);
    const auto below = static_cast<uint16_t>(bits >> 16);  // nearer to zero
    const auto above = static_cast<uint16_t>(below + 1);
    if (!AllFinite(&above, StateEncoding::kBf16, 1)) continue;
    const double to_below = std::abs(double{value} - double{Widened(below)});
    const double to_above = std::abs(double{value} - double{Widened(above)});
    uint16_t want = to_below < to_above ? below : above;
    if (to_below == to_above) {
      want = below % 2 == 0 ? below : above;
      ++ties;
    }
    ASSERT_EQ(got, want) << bits;
  }
  EXPECT_GT(ties, 1000);
}

TEST(StateElementsTest, WhatIsTooLargeForBf16BecomesItsLargestNumber) {
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(Rounded(largest), 0x7f7f);
  EXPECT_EQ(Rounded(-largest), 0xff7f);
  EXPECT_EQ(Rounded(0.0f), 0x0000);
  EXPECT_EQ(Rounded(-0.0f), 0x8000);
  EXPECT_EQ(Rounded(std::numeric_limits<float>::denorm_min()), 0x0000);
  EXPECT_EQ(Rounded(1.0f), 0x3f80);
}

TEST(StateElementsTest, LongAndUnalignedRunsConvertLikeSingleNumbers) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  for (const int64_t count : {0, 1, 255, 256, 257, 1000}) {
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    std::vector<char> wide(count * 4 + 1), narrow(count * 2 + 1);
    if (count > 0) std::memcpy(wide.data() + 1, values.data(), count * 4);
    ConvertElements(wide.data() + 1, StateEncoding::kF32, count,
                    StateEncoding::kBf16, narrow.data() + 1);
    std::vector<char> back(count * 4 + 1);
    ConvertElements(narrow.data() + 1, StateEncoding::kBf16, count,
                    StateEncoding::kF32, back.data() + 1);
    for (int64_t i = 0; i < count; ++i) {
      float value = 0;
      std::memcpy(&value, back.data() + 1 + i * 4, 4);
      EXPECT_EQ(value, Widened(Rounded(values[i])));
      EXPECT_LE(std::abs(value - values[i]), std::abs(values[i]) / 256);
    }
    EXPECT_EQ(back[0], 0);
    EXPECT_EQ(narrow[0], 0);
  }
}

TEST(StateElementsTest, FindsWhatIsNotFiniteAnywhere) {
  for (const int64_t at : {0, 255, 256, 299}) {
    for (const uint16_t bad : {0x7f80, 0xff80, 0x7fc0, 0xff81}) {
      std::vector<uint16_t> narrow(300, 0x7f7f);
      EXPECT_TRUE(AllFinite(narrow.data(), StateEncoding::kBf16, 300));
      narrow[at] = bad;
      EXPECT_FALSE(AllFinite(narrow.data(), StateEncoding::kBf16, 300)) << at;
      EXPECT_TRUE(AllFinite(narrow.data(), StateEncoding::kBf16, at)) << at;
    }
    std::vector<float> wide(300, std::numeric_limits<float>::max());
    EXPECT_TRUE(AllFinite(wide.data(), StateEncoding::kF32, 300));
    wide[at] = std::nanf("");
    EXPECT_FALSE(AllFinite(wide.data(), StateEncoding::kF32, 300)) << at;
    // As in a snapshot, at any address.
    std::vector<char> bytes(1201, '\xff');
    std::memcpy(bytes.data() + 1, wide.data(), 1200);
    EXPECT_TRUE(AllFinite(bytes.data() + 1, StateEncoding::kF32, at)) << at;
    EXPECT_FALSE(AllFinite(bytes.data() + 1, StateEncoding::kF32, at + 1));
  }
}

}  // namespace
}  // namespace reprise
