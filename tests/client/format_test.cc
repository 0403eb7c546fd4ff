#include "client/format.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <string>

namespace reprise {
namespace {

TEST(FormatTest, ChoosesTheUnitOfDurations) {
  EXPECT_EQ(FormatDuration(0), "0 us");
  EXPECT_EQ(FormatDuration(999), "999 us");
  EXPECT_EQ(FormatDuration(8'300), "8.3 ms");
  EXPECT_EQ(FormatDuration(1'240'000), "1.24 s");
}

TEST(FormatTest, ChoosesTheUnitOfBytes) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.0 KiB");
  EXPECT_EQ(FormatBytes(3 << 20), "3.0 MiB");
  EXPECT_EQ(FormatBytes(uint64_t{5} << 50), "5120.0 TiB");
}

TEST(FormatTest, GroupsThousands) {
  EXPECT_EQ(FormatDecimals(3.14159, 2), "3.14");
  EXPECT_EQ(FormatDecimals(-0.5, 0), "-0");
  EXPECT_EQ(FormatDecimals(2, 3), "2.000");
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1'000), "1,000");
  EXPECT_EQ(FormatTokens(1), "1 token");
  EXPECT_EQ(FormatTokens(1'000), "1,000 tokens");
  EXPECT_EQ(FormatCount(31'102'000), "31,102,000");
}

TEST(FormatTest, WritesLocalTime) {
  setenv("TZ", "UTC", /*replace=*/1);
  tzset();
  EXPECT_EQ(FormatTime(0), "1970-01-01 00:00:00");
  EXPECT_EQ(FormatTime(1'769'860'805'999), "2026-01-31 12:00:05");
}

TEST(FormatTest, QuotesBytes) {
  EXPECT_EQ(QuoteBytes("a b"), "\"a b\"");
  EXPECT_EQ(QuoteBytes("\n\t\"\\"), R"("\n\t\"\\")");
  EXPECT_EQ(QuoteBytes(std::string("\0\x1b\xff", 3)), R"("\x00\x1b\xff")");
  EXPECT_EQ(QuoteBytes("\xc3\xa9\xc2\x9b"), "\"\xc3\xa9\\xc2\\x9b\"");
  EXPECT_EQ(QuoteBytes(""), "\"\"");
}

TEST(TableTest, AlignsColumnsAndLeavesNoTrailingSpaces) {
  Table table({{"ID", Align::kLeft},
               {"TOKENS", Align::kRight},
               {"PLACE", Align::kLeft}});
  table.AddRow({"genesis", "7", "resident"});
  table.AddRow({"e", "1,234,567", "slot"});
  EXPECT_EQ(table.ToString(),
            "ID          TOKENS  PLACE\n"
            "genesis          7  resident\n"
            "e        1,234,567  slot\n");
}

TEST(TableTest, OfNoRowsIsItsHeader) {
  EXPECT_EQ(Table({{"ID", Align::kLeft}}).ToString(), "ID\n");
}

TEST(FormatTest, AlignsPropertyValues) {
  EXPECT_EQ(FormatProperties({{"id", "s"}, {"revision", "3"}}),
            "id:        s\n"
            "revision:  3\n");
}

}  // namespace
}  // namespace reprise
