#include "engine/model/config_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/json.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ConfigReaderTest, ReadsFieldsAndFallsBack) {
  const Json object =
      JsonOf(R"({"i":3,"f":0.5,"b":true,"s":"x","n":null,"l":[1,2],"one":7})");
  ConfigReader config(object, "config.json");
  EXPECT_EQ(config.Int("i", 1, 10), 3);
  EXPECT_EQ(config.Int("none", 1, 10, 4), 4);
  EXPECT_EQ(config.Int("n", 1, 10, 5), 5);
  EXPECT_EQ(config.Number("f", 0, 1), 0.5);
  EXPECT_EQ(config.Number("i", 0, 9), 3.0);
  EXPECT_TRUE(config.Bool("b"));
  EXPECT_FALSE(config.Bool("n", false));
  EXPECT_EQ(config.String("s"), "x");
  EXPECT_EQ(config.String("none", "y"), "y");
  EXPECT_THAT(config.IntList("l", 0, 9), ElementsAre(1, 2));
  EXPECT_THAT(config.IntList("one", 0, 9), ElementsAre(7));
  EXPECT_THAT(config.IntList("n", 0, 9), IsEmpty());
  EXPECT_TRUE(config.Has("s"));
  EXPECT_FALSE(config.Has("n"));
  EXPECT_TRUE(config.status().ok()) << config.status();
}

TEST(ConfigReaderTest, AFallbackHasTheLimitsOfAValue) {
  const Json object = Json::object();
  const auto refusal = [&object](auto read) {
    ConfigReader config(object, "config.json");
    read(config);
    return std::string(config.status().message());
  };
  EXPECT_EQ(refusal([](auto& c) { EXPECT_EQ(c.Int("i", 1, 256, 512), 1); }),
            "config.json: field 'i' is absent, which makes it 512 here; it "
            "must be a whole number in 1..256");
  EXPECT_EQ(refusal([](auto& c) { EXPECT_EQ(c.Number("f", 1, 4, 0.5), 1); }),
            "config.json: field 'f' is absent, which makes it 0.5 here; it "
            "must be a number in 1..4");
}

TEST(ConfigReaderTest, ReadsStringsAndTellsNullFromAbsent) {
  const Json object = JsonOf(R"({"s":["a","b"],"e":[],"n":null,"x":"a"})");
  ConfigReader config(object, "config.json", "outer.");
  EXPECT_THAT(config.StringList("s"), ElementsAre("a", "b"));
  EXPECT_THAT(config.StringList("e"), IsEmpty());
  EXPECT_THAT(config.StringList("n"), IsEmpty());
  EXPECT_TRUE(config.Names("n"));
  EXPECT_FALSE(config.Names("none"));
  EXPECT_TRUE(config.status().ok()) << config.status();
  EXPECT_THAT(config.StringList("x"), IsEmpty());
  EXPECT_EQ(config.status().message(),
            "config.json: field 'outer.x' must be an array of strings, not "
            "'a'");
}

TEST(ConfigReaderTest, RefusalsNameFileFieldAndValue) {
  const Json object = JsonOf(
      R"({"zero":0,"big":18446744073709551615,"f":1.5,"s":"x","l":[1,99],
          "o":{}})");
  const auto refusal = [&object](auto read) {
    ConfigReader config(object, "config.json");
    read(config);
    return std::string(config.status().message());
  };
  EXPECT_EQ(refusal([](ConfigReader& c) { c.Int("gone", 1, 9); }),
            "config.json: field 'gone' is missing");
  EXPECT_EQ(refusal([](ConfigReader& c) { c.Int("zero", 1, 9); }),
            "config.json: field 'zero' must be a whole number in 1..9, not 0");
  EXPECT_EQ(refusal([](ConfigReader& c) { c.Int("big", 1, 9); }),
            "config.json: field 'big' must be a whole number in 1..9, not "
            "18446744073709551615");
  EXPECT_EQ(refusal([](ConfigReader& c) { c.Int("f", 1, 9); }),
            "config.json: field 'f' must be a whole number in 1..9, not 1.5");
  EXPECT_EQ(refusal([](ConfigReader& c) { c.Number("f", 0, 1); }),
            "config.json: field 'f' must be a number in 0..1, not 1.5");
  EXPECT_EQ(refusal([](ConfigReader& c) { c.Bool("zero"); }),
            "config.json: field 'zero' must be true or false, not 0");
  EXPECT_EQ(refusal([](ConfigReader& c) { c.String("o"); }),
            "config.json: field 'o' must be a string, not an object");
  EXPECT_EQ(refusal([](ConfigReader& c) { c.IntList("l", 0, 9); }),
            "config.json: field 'l' must be a whole number in 0..9, not 99");
  EXPECT_EQ(refusal([](ConfigReader& c) { c.IntList("s", 0, 9); }),
            "config.json: field 's' must be a whole number in 0..9, not 'x'");
}

TEST(ConfigReaderTest, KeepsTheFirstErrorAndReturnsAllowedValuesAfterIt) {
  const Json object = JsonOf(R"({"a":-1,"b":5})");
  ConfigReader config(object, "config.json");
  EXPECT_EQ(config.Int("a", 2, 9), 2);
  EXPECT_EQ(config.Int("b", 1, 9), 1);
  config.Refuse("b", "is wrong too");
  EXPECT_EQ(std::string(config.status().message()),
            "config.json: field 'a' must be a whole number in 2..9, not -1");
}

TEST(ConfigReaderTest, RemembersWhatWasRead) {
  const Json object = JsonOf(R"({"b":2,"a":[1],"unread":3})");
  ConfigReader config(object, "config.json");
  config.Int("b", 0, 9);
  config.IntList("a", 0, 9);
  config.Number("c", 0, 1, 0.25);
  EXPECT_EQ(config.UsedFields(), "a=[1]\nb=2\nc=0.25\n");
}

}  // namespace
}  // namespace reprise
