#include "engine/base/log.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/json.h"

namespace reprise {
namespace {

using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

TEST(LogTest, WritesOneLineWithFields) {
  CaptureStderr();
  LogInfo("model loaded", {{"family", "linear_attn"}, {"layers", 6}});
  const std::string line = GetCapturedStderr();
  EXPECT_NE(line.find("info model loaded family=linear_attn layers=6\n"),
            std::string::npos)
      << line;
}

TEST(LogTest, AValueCannotForgeAFieldOrALine) {
  CaptureStderr();
  LogInfo("request", {{"id", "a\nerror admin=true"}});
  const std::string line = GetCapturedStderr();
  EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
  EXPECT_NE(line.find(R"(id="a\nerror admin=true")"), std::string::npos);
}

TEST(LogTest, JsonLinesParseAndKeepTypes) {
  SetLogFormat(LogFormat::kJson);
  CaptureStderr();
  LogWarning("odd \"name\"",
             {{"ratio", 0.5}, {"ok", false}, {"bytes", "\xff"}});
  const std::string line = GetCapturedStderr();
  SetLogFormat(LogFormat::kText);
  const Json parsed = JsonOf(line);
  EXPECT_EQ(parsed["level"], "warning");
  EXPECT_EQ(parsed["message"], "odd \"name\"");
  EXPECT_EQ(parsed["ratio"], 0.5);
  EXPECT_EQ(parsed["ok"], false);
}

TEST(LogTest, DoublesAreShort) {
  CaptureStderr();
  LogInfo(
      "x",
      {{"a", 287 * 1e-3}, {"b", 7.0}, {"c", 1.0 / 3}, {"d", 1e300 * 1e300}});
  EXPECT_NE(GetCapturedStderr().find(" a=0.287 b=7 c=0.333333 d=null\n"),
            std::string::npos);
}

TEST(LogTest, LinesBelowTheLevelAreDropped) {
  SetLogLevel(LogLevel::kError);
  CaptureStderr();
  LogWarning("not shown");
  EXPECT_EQ(GetCapturedStderr(), "");
  SetLogLevel(LogLevel::kInfo);
}

TEST(CheckDeathTest, NamesTheConditionAndAborts) {
  EXPECT_DEATH(CHECK(1 + 1 == 3), "1 \\+ 1 == 3");
}

}  // namespace
}  // namespace reprise
