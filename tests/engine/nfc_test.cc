#include "engine/nfc.h"

#include <gtest/gtest.h>

#include <string>

namespace reprise {
namespace {

TEST(NfcTest, LeavesComposedTextAlone) {
  for (const std::string& text :
       {std::string(), std::string("plain\0text", 10),
        std::string("\u00E9\u00FCber \u4F60\u597D \U0001F600")}) {
    EXPECT_EQ(NormalizeNfc(text), text);
  }
}

// Unicode Standard Annex 15, table 4 and figures 3 to 6.
TEST(NfcTest, ComposesTheExamplesOfTheAnnex) {
  EXPECT_EQ(NormalizeNfc("e\u0301"), "\u00E9");
  EXPECT_EQ(NormalizeNfc("\u212B"), "\u00C5");  // Angstrom sign
  EXPECT_EQ(NormalizeNfc("\u2126"), "\u03A9");  // Ohm sign
  EXPECT_EQ(NormalizeNfc("\u1E9B\u0323"), "\u1E9B\u0323");
  EXPECT_EQ(NormalizeNfc("d\u0307\u0323"), "\u1E0D\u0307");  // marks ordered
  EXPECT_EQ(NormalizeNfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(NormalizeNfc("\uFB01"), "\uFB01");  // compatibility: stays
  EXPECT_EQ(NormalizeNfc("\u1112\u1161\u11AB"), "\uD55C");  // Hangul
  EXPECT_EQ(NormalizeNfc("\u0344"), "\u0308\u0301");        // excluded
  EXPECT_EQ(NormalizeNfc("\u0958"), "\u0915\u093C");        // excluded
}

// Every swap of neighbours would be needed if they were sorted that way.
TEST(NfcTest, OrdersAMillionMarksInTime) {
  std::string text = "a";
  std::string ordered = "\u1EA1";  // a and the first dot below
  for (int i = 0; i < 250000; ++i) text += "\u0307\u0323";
  for (int i = 1; i < 250000; ++i) ordered += "\u0323";
  for (int i = 0; i < 250000; ++i) ordered += "\u0307";
  EXPECT_EQ(NormalizeNfc(text), ordered);
}

}  // namespace
}  // namespace reprise
