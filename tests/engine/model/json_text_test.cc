#include "engine/model/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;

constexpr JsonLimits kLimits = {.max_bytes = 1000, .max_depth = 4};

std::string Refusal(std::string_view text) {
  const auto value = ParseJson(text, "f.json", kLimits);
  EXPECT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(value.status().message());
}

TEST(JsonTextTest, ParsesWithinTheLimits) {
  const auto value =
      ParseJson(R"({"a":[[{"b":1}]],"c":"\u00e9"})", "f.json", kLimits);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ((*value)["a"][0][0]["b"], 1);
  EXPECT_EQ((*value)["c"], "\xc3\xa9");
}

TEST(JsonTextTest, RefusesMoreThanTheLimits) {
  EXPECT_THAT(Refusal(R"({"a":[[[[1]]]]})"),
              HasSubstr("f.json is nested deeper than 4 levels"));
  EXPECT_THAT(Refusal(std::string(1001, ' ')),
              HasSubstr("f.json has 1001 bytes, the limit is 1000"));
  EXPECT_FALSE(ParseJson(std::string(10'000'000, '['), "f.json",
                         {.max_bytes = 100'000'000, .max_depth = 4})
                   .ok());
}

TEST(JsonTextTest, RefusesAKeyTwiceInOneObject) {
  EXPECT_THAT(Refusal(R"({"x":{"a":1,"b":2,"a":1}})"),
              HasSubstr("has the key 'a' twice"));
  EXPECT_TRUE(ParseJson(R"([{"a":1},{"a":{"a":2}}])", "f.json", kLimits).ok());
}

TEST(JsonTextTest, RefusesWhatIsNoJson) {
  for (const char* text :
       {"", "{", "{'a':1}", "{\"a\":NaN}", "{} x", "{\"a\":1,}", "\"\xff\""}) {
    EXPECT_THAT(Refusal(text), HasSubstr("f.json is not JSON")) << text;
  }
}

TEST(JsonTextTest, ReadsObjectsFromFiles) {
  TempDir dir;
  const std::string path = dir.Write("c.json", R"({"a":1})");
  EXPECT_TRUE(ReadJsonObject(path, kLimits).ok());
  dir.Write("c.json", "[1]");
  EXPECT_THAT(std::string(ReadJsonObject(path, kLimits).status().message()),
              HasSubstr("c.json does not hold a JSON object"));
  EXPECT_EQ(ReadJsonObject(dir.path() + "/none.json", kLimits).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(JsonTextTest, QuotesForMessages) {
  EXPECT_EQ(Quoted("a'b\n\x01"), "'a\\'b\\n\\x01'");
  EXPECT_EQ(Quoted(std::string(500, 'x')),
            "'" + std::string(120, 'x') + "...'");
  // Never in the middle of a character.
  EXPECT_EQ(Quoted(std::string(119, 'x') + "\u00e9\u00e9"),
            "'" + std::string(119, 'x') + "...'");
  EXPECT_EQ(Quoted(std::string(118, 'x') + "\u00e9"),
            "'" + std::string(118, 'x') + "\u00e9'");
}

}  // namespace
}  // namespace reprise
