#include "server/store/redis_uri.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/store/snapshot_store.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using enum absl::StatusCode;

RedisOptions Parsed(const std::string& uri) {
  const absl::StatusOr<RedisOptions> options = ParseRedisUri(uri);
  EXPECT_TRUE(options.ok()) << uri << ": " << options.status();
  return options.ok() ? *options : RedisOptions();
}

TEST(RedisUriTest, AHostIsEnough) {
  const RedisOptions options = Parsed("redis://example.org");
  EXPECT_EQ(options.address.host, "example.org");
  EXPECT_EQ(options.address.port, 6379);
  EXPECT_EQ(options.address.path, "");
  EXPECT_EQ(options.database, 0);
  EXPECT_EQ(options.user, "");
  EXPECT_EQ(options.password, "");
  EXPECT_EQ(options.prefix, "reprise");
  EXPECT_FALSE(options.tls);
  EXPECT_EQ(options.connect_timeout_ms, 2000);
  EXPECT_EQ(options.timeout_ms, 5000);
  EXPECT_EQ(options.wait_replicas, 0);
}

TEST(RedisUriTest, EverythingCanBeSaid) {
  const RedisOptions options = Parsed(
      "rediss://me:p%40ss%3aw@[::1]:7000/3?prefix=a.b_c-d&ca=/x%20y&cert=c&"
      "key=k&server_name=name&connect_timeout=10&timeout=20&wait_replicas=2");
  EXPECT_EQ(options.address.host, "::1");
  EXPECT_EQ(options.address.port, 7000);
  EXPECT_EQ(options.address.Text(), "[::1]:7000");
  EXPECT_EQ(options.database, 3);
  EXPECT_EQ(options.user, "me");
  EXPECT_EQ(options.password, "p@ss:w");
  EXPECT_EQ(options.prefix, "a.b_c-d");
  EXPECT_TRUE(options.tls);
  EXPECT_EQ(options.tls_options.ca_file, "/x y");
  EXPECT_EQ(options.tls_options.cert_file, "c");
  EXPECT_EQ(options.tls_options.key_file, "k");
  EXPECT_EQ(options.tls_options.server_name, "name");
  EXPECT_EQ(options.connect_timeout_ms, 10);
  EXPECT_EQ(options.timeout_ms, 20);
  EXPECT_EQ(options.wait_replicas, 2);
  EXPECT_EQ(Parsed("rediss://example.org").tls_options.server_name,
            "example.org");
}

TEST(RedisUriTest, ALocalSocketHasAPathAndParameters) {
  const RedisOptions options = Parsed("redis+unix:/run/a.sock?database=2");
  EXPECT_EQ(options.address.path, "/run/a.sock");
  EXPECT_EQ(options.address.Text(), "/run/a.sock");
  EXPECT_EQ(options.database, 2);
}

TEST(RedisUriTest, ThePasswordMayLieInAFile) {
  const TempDir dir;
  const std::string file = dir.Write("password", "sec ret\nsecond line\n");
  const RedisOptions options =
      Parsed("redis://host?user=me&password_file=" + file);
  EXPECT_EQ(options.user, "me");
  EXPECT_EQ(options.password, "sec ret");
  const absl::Status missing =
      ParseRedisUri("redis://host?password_file=" + dir.Path("none")).status();
  EXPECT_EQ(missing.code(), kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr(dir.Path("none")));
}

TEST(RedisUriTest, WhatIsWrongIsNamed) {
  const struct {
    const char* uri;
    const char* said;
  } kCases[] = {
      {"redis:host", "must be followed by //HOST:PORT"},
      {"redis://", "address \"\" must be HOST or HOST:PORT"},
      {"redis://:6379", "address"},
      {"redis://host:", "port \"\" must be a whole number from 1 to 65535"},
      {"redis://host:0", "port \"0\""},
      {"redis://host:65536", "port \"65536\""},
      {"redis://host:12x", "port \"12x\""},
      {"redis://[::1", "[IPV6]:PORT"},
      {"redis://[::1]7", "[IPV6]:PORT"},
      {"redis://[]:7", "[IPV6]:PORT"},
      {"redis://host/x", "database \"x\""},
      {"redis://host/-1", "database \"-1\" must be a whole number from 0"},
      {"redis://me@host", "USER:PASSWORD"},
      {"redis://me:@host", "user \"me\" has no password"},
      {"redis://host?user=me", "user \"me\" has no password"},
      {"redis://:%4@host", "password: % must be followed by two hexadecimal"},
      {"redis://:%zz@host", "password: %"},
      {"redis://host?prefix=", "\"prefix\" must be followed by = and a value"},
      {"redis://host?prefix", "followed by ="},
      {"redis://host?prefix={x}", "prefix \"{x}\" must be 1 to 64 of"},
      {"redis://host?timeout=0", "timeout \"0\" must be a whole number from 1"},
      {"redis://host?wait_replicas=101", "from 0 to 100"},
      {"redis://host?colour=red", "parameter \"colour\" must be prefix, data"},
      {"redis://host?ca=x", "ca is for rediss:// alone"},
      {"rediss://host?cert=x", "cert and key must be given together"},
      {"redis+unix:run/a.sock", "must be the whole path"},
  };
  for (const auto& [uri, said] : kCases) {
    const absl::Status status = ParseRedisUri(uri).status();
    EXPECT_EQ(status.code(), kInvalidArgument) << uri;
    EXPECT_THAT(std::string(status.message()), HasSubstr(said)) << uri;
  }
  const std::string long_path(108, 'x');
  EXPECT_EQ(ParseRedisUri("redis+unix:/" + long_path).status().code(),
            kInvalidArgument);
}

TEST(RedisUriTest, APasswordIsNeverShown) {
  for (const char* uri :
       {"redis://me:secret@host:x", "redis://me:secret@", "redis:me:secret@h",
        "redis://:secret@host?colour=red", "redis://:secret%@host",
        "redis://me:secret@host/x"}) {
    const absl::Status status = OpenStore(uri).status();
    EXPECT_EQ(status.code(), kInvalidArgument) << uri;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("secret")));
  }
  EXPECT_EQ(WithoutPassword("redis://me:secret@host:1/2?timeout=3"),
            "redis://me:***@host:1/2?timeout=3");
  EXPECT_EQ(WithoutPassword("redis://:secret@host"), "redis://:***@host");
  EXPECT_EQ(WithoutPassword("redis://host:1"), "redis://host:1");
  EXPECT_EQ(WithoutPassword("rocksdb:/a@b:c"), "rocksdb:/a@b:c");
  EXPECT_EQ(WithoutPassword("memory:"), "memory:");
  EXPECT_THAT(std::string(OpenStore("redid://me:secret@h").status().message()),
              Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace reprise
