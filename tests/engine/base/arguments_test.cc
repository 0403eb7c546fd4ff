#include "engine/base/arguments.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace reprise {
namespace {

// A program with --name VALUE, --number VALUE and the flag --json.
std::string Find(const std::vector<std::string>& args) {
  return FindMissingValue(args, [](std::string_view flag) {
    return flag == "--name" || flag == "--number";
  });
}

TEST(FindMissingValueTest, NothingBehindTheSignIsRefusedByName) {
  const std::string sentence = "--name: there is nothing behind the =";
  EXPECT_EQ(Find({"--name=", "text"}), sentence);
  EXPECT_EQ(Find({"text", "--name="}), sentence);
  EXPECT_EQ(Find({"--json", "--name=", "--json"}), sentence);
  EXPECT_EQ(Find({"--json="}), "--json: there is nothing behind the =");
}

TEST(FindMissingValueTest, AnOptionIsNoValue) {
  EXPECT_EQ(Find({"--name", "--json"}),
            "--name: the value is missing, --json is an option (if it is "
            "meant, write --name=--json)");
  EXPECT_NE(Find({"--name", "-v"}), "");
  EXPECT_NE(Find({"--name", "--", "text"}), "");
}

TEST(FindMissingValueTest, ValuesAreFine) {
  EXPECT_EQ(Find({}), "");
  EXPECT_EQ(Find({"--name=x", "--name", "y", "--json", "text", "-"}), "");
  EXPECT_EQ(Find({"--number", "-1", "--number", "-.5", "--name", "-"}), "");
  EXPECT_EQ(Find({"--name=--json", "--name=a=", "--name", "a=", "b="}), "");
  EXPECT_EQ(Find({"--name", ""}), "");
}

TEST(FindMissingValueTest, WhatIsMissingAtTheEndIsLeftToTheParser) {
  EXPECT_EQ(Find({"--name"}), "");
}

TEST(FindMissingValueTest, BehindTwoDashesNothingIsAnOption) {
  EXPECT_EQ(Find({"--json", "--", "--name=", "--name", "--json"}), "");
}

TEST(HasFlagTest, SeesItBeforeTwoDashesOnly) {
  EXPECT_TRUE(HasFlag({"a", "--json"}, "--json"));
  EXPECT_FALSE(HasFlag({"a", "--", "--json"}, "--json"));
  EXPECT_FALSE(HasFlag({"--jsonx", "--json=1"}, "--json"));
}

}  // namespace
}  // namespace reprise
