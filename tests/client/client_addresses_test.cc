#include "client/client_addresses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParseAddressesTest, OneOrSeveral) {
  EXPECT_THAT(*ParseAddresses("127.0.0.1:8980"), ElementsAre("127.0.0.1:8980"));
  EXPECT_THAT(*ParseAddresses("a:1,b.c-d:65535,[::1]:3"),
              ElementsAre("a:1", "b.c-d:65535", "[::1]:3"));
}

TEST(ParseAddressesTest, SaysWhichIsWrongAndWhy) {
  const struct {
    const char* text;
    const char* says;
  } kCases[] = {
      {"", "'' is not HOST:PORT: the port is missing"},
      {"localhost", "'localhost' is not HOST:PORT: the port is missing"},
      {"[::1]", "'[::1]' is not HOST:PORT: the port is missing"},
      {"a:1,", "'' is not HOST:PORT"},
      {"a:1, b:2", "' b:2' is not HOST:PORT: the host is a name"},
      {"a:1,b", "'b' is not HOST:PORT"},
      {"a:0", "'a:0' is not HOST:PORT: the port is a number from 1 to 65535"},
      {"a:65536", "the port is a number"},
      {"a:x", "the port is a number"},
      {"a:-1", "the port is a number"},
      {":1", "the host is a name"},
      {"::1:8980", "an IPv6 address in brackets"},
      {"[a/b]:1", "the host is a name"},
      {"http://a:1", "no scheme may stand before it"},
      {"a b:1", "the host is a name"},
  };
  for (const auto& each : kCases) {
    const auto addresses = ParseAddresses(each.text);
    EXPECT_EQ(addresses.status().code(), absl::StatusCode::kInvalidArgument)
        << each.text;
    EXPECT_THAT(std::string(addresses.status().message()), HasSubstr(each.says))
        << each.text;
  }
}

TEST(ParseAddressesTest, ThereIsALimit) {
  std::string text = "a:1";
  for (int i = 1; i < 64; ++i) text += ",a:1";
  EXPECT_EQ(ParseAddresses(text)->size(), 64u);
  EXPECT_THAT(std::string(ParseAddresses(text + ",a:1").status().message()),
              HasSubstr("more than 64 addresses"));
}

}  // namespace
}  // namespace reprise
