#include "engine/normal_form.h"

#include <gtest/gtest.h>

#include <string>

namespace reprise {
namespace {

std::string Form(NormalForm form, std::string_view text) {
  const absl::StatusOr<std::string> result = Normalize(form, text);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.value_or("");
}

std::string Nfc(std::string_view text) { return Form(NormalForm::kNfc, text); }

TEST(NormalFormTest, LeavesComposedTextAlone) {
  for (const std::string& text :
       {std::string(), std::string("plain\0text", 10),
        std::string("\u00E9\u00FCber \u4F60\u597D \U0001F600")}) {
    EXPECT_EQ(Nfc(text), text);
  }
}

// Unicode Standard Annex 15, table 4 and figures 3 to 6.
TEST(NormalFormTest, ComposesTheExamplesOfTheAnnex) {
  EXPECT_EQ(Nfc("e\u0301"), "\u00E9");
  EXPECT_EQ(Nfc("\u212B"), "\u00C5");  // Angstrom sign
  EXPECT_EQ(Nfc("\u2126"), "\u03A9");  // Ohm sign
  EXPECT_EQ(Nfc("\u1E9B\u0323"), "\u1E9B\u0323");
  EXPECT_EQ(Nfc("d\u0307\u0323"), "\u1E0D\u0307");  // marks ordered
  EXPECT_EQ(Nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(Nfc("\uFB01"), "\uFB01");              // compatibility: stays
  EXPECT_EQ(Nfc("\u1112\u1161\u11AB"), "\uD55C");  // Hangul
  EXPECT_EQ(Nfc("\u0344"), "\u0308\u0301");        // excluded
  EXPECT_EQ(Nfc("\u0958"), "\u0915\u093C");        // excluded
}

// Unicode Standard Annex 15, figure 6.
TEST(NormalFormTest, FormsTheCompatibilityExamplesOfTheAnnex) {
  const struct {
    std::string source, nfd, nfc, nfkd, nfkc;
  } kRows[] = {
      {"\uFB01", "\uFB01", "\uFB01", "fi", "fi"},
      {"2\u2075", "2\u2075", "2\u2075", "25", "25"},
      {"\u1E9B\u0323", "\u017F\u0323\u0307", "\u1E9B\u0323", "s\u0323\u0307",
       "\u1E69"},
  };
  for (const auto& row : kRows) {
    EXPECT_EQ(Form(NormalForm::kNfd, row.source), row.nfd);
    EXPECT_EQ(Form(NormalForm::kNfc, row.source), row.nfc);
    EXPECT_EQ(Form(NormalForm::kNfkd, row.source), row.nfkd);
    EXPECT_EQ(Form(NormalForm::kNfkc, row.source), row.nfkc);
  }
  // Below U+0300, and yet not its own form.
  EXPECT_EQ(Form(NormalForm::kNfkc, "a\u00A0b\u00BD"), "a b1\u20442");
  EXPECT_EQ(Form(NormalForm::kNfd, "\u00E9"), "e\u0301");
}

// U+FDFA becomes 18 characters.
TEST(NormalFormTest, RefusesATextThatGrowsTooLong) {
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) text += "\uFDFA";
  EXPECT_TRUE(Normalize(NormalForm::kNfc, text).ok());
  EXPECT_EQ(Normalize(NormalForm::kNfkc, text).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Every swap of neighbours would be needed if they were sorted that way.
TEST(NormalFormTest, OrdersAMillionMarksInTime) {
  std::string text = "a";
  std::string ordered = "\u1EA1";  // a and the first dot below
  for (int i = 0; i < 250000; ++i) text += "\u0307\u0323";
  for (int i = 1; i < 250000; ++i) ordered += "\u0323";
  for (int i = 0; i < 250000; ++i) ordered += "\u0307";
  EXPECT_EQ(Nfc(text), ordered);
}

}  // namespace
}  // namespace reprise
