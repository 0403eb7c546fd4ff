// What the tests of the Redis store share.
#ifndef TESTS_SERVER_STORE_REDIS_FIXTURE_H_
#define TESTS_SERVER_STORE_REDIS_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/store/redis_client.h"
#include "server/store/redis_uri.h"
#include "tests/server/store/store_calls.h"
#include "tests/support/redis_server.h"

namespace reprise {

// Commands to a server, behind a store's back.
class RedisTalk {
 public:
  explicit RedisTalk(const std::string& uri) {
    absl::StatusOr<std::unique_ptr<RedisClient>> client =
        RedisClient::Open(*ParseRedisUri(uri));
    EXPECT_TRUE(client.ok()) << client.status();
    if (client.ok()) client_ = *std::move(client);
  }

  RedisReply Say(const std::vector<std::string>& command) {
    absl::StatusOr<RedisClient::Replies> replies =
        client_->Call({{command.begin(), command.end()}});
    EXPECT_TRUE(replies.ok()) << command[0] << ": " << replies.status();
    return replies.ok() ? std::move(replies->list[0]) : RedisReply();
  }

 private:
  std::unique_ptr<RedisClient> client_;
};

}  // namespace reprise

#endif  // TESTS_SERVER_STORE_REDIS_FIXTURE_H_
