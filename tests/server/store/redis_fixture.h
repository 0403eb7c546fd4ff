// What the tests of the Redis store share.
#ifndef TESTS_SERVER_STORE_REDIS_FIXTURE_H_
#define TESTS_SERVER_STORE_REDIS_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/store/redis_client.h"
#include "server/store/redis_uri.h"
#include "server/store/snapshot_store.h"
#include "tests/support/redis_server.h"

namespace reprise {

inline const SessionKey kKey{"t", "id"};

inline std::unique_ptr<SnapshotStore> OpenGood(const std::string& uri) {
  absl::StatusOr<std::unique_ptr<SnapshotStore>> store = OpenStore(uri);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

inline absl::Status PutState(SnapshotStore& store, const SessionKey& key,
                             std::optional<uint64_t> expected,
                             uint64_t revision, std::string_view snapshot,
                             int64_t expires_unix_ms = 0) {
  StoredSession session;
  session.revision = revision;
  session.expires_unix_ms = expires_unix_ms;
  return store.Put(key, expected, session, snapshot, {}).status();
}

inline std::string StateOf(SnapshotStore& store, const SessionKey& key) {
  StoredSession session;
  std::string snapshot;
  const absl::Status status = store.Get(key, &session, &snapshot);
  EXPECT_TRUE(status.ok()) << status;
  return snapshot;
}

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
