#include "engine/python_literal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace reprise {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(PythonLiteralTest, ReadsTextAsUtf8) {
  EXPECT_EQ(*ParsePythonLiteral("'abc'"), "abc");
  EXPECT_EQ(*ParsePythonLiteral("''"), "");
  EXPECT_EQ(*ParsePythonLiteral(R"("it's")"), "it's");
  EXPECT_EQ(*ParsePythonLiteral(R"('it\'s \\ \"')"), "it's \\ \"");
  EXPECT_EQ(*ParsePythonLiteral(R"('\t\n\r\x0b\x00')"),
            std::string("\t\n\r\x0b\0", 5));
  EXPECT_EQ(*ParsePythonLiteral("'\u4F60'"), "\u4F60");
  // Code points, not bytes.
  EXPECT_EQ(*ParsePythonLiteral(R"('\xe9\u200b\U0001f600')"),
            "\u00E9\u200B\U0001F600");
}

TEST(PythonLiteralTest, ReadsBytes) {
  EXPECT_EQ(*ParsePythonLiteral(R"(b'\xe9\xFFa')"),
            "\xE9\xFF"
            "a");
  EXPECT_EQ(*ParsePythonLiteral(R"(b"'")"), "'");
}

TEST(PythonLiteralTest, RefusesAnythingElse) {
  const std::pair<const char*, const char*> kBad[] = {
      {"", "quotes"},
      {"'", "quotes"},
      {"abc", "quotes"},
      {"'a\"", "quotes"},
      {"b", "quotes"},
      {"u'a'", "quotes"},
      {"'a'b'", "must be escaped"},
      {"'\xFF'", "UTF-8"},
      {"b'\u00E9'", "must be escaped"},
      {R"('\')", "at the end"},
      {R"('\x1')", "hex"},
      {R"('\xg0')", "hex"},
      {R"('\u12')", "hex"},
      {R"('\ud800')", "55296"},
      {R"('\U00110000')", "1114112"},
      {R"('\UFFFFFFFF')", "no character"},
      {R"(b'\u0041')", "unknown escape"},
      {R"('\N{DASH}')", "unknown escape"},
      {R"('\101')", "unknown escape"},
  };
  for (const auto& [literal, words] : kBad) {
    const auto bytes = ParsePythonLiteral(literal);
    EXPECT_EQ(bytes.status().code(), absl::StatusCode::kInvalidArgument)
        << literal;
    const std::string message(bytes.status().message());
    EXPECT_THAT(message, HasSubstr(words)) << literal;
    EXPECT_THAT(message, StartsWith("has ")) << literal;
  }
}

}  // namespace
}  // namespace reprise
