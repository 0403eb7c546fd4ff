// Every kind of store, for the tests of what all of them promise. A new store
// is one more line in AllStores.
#ifndef TESTS_SERVER_STORE_STORE_FIXTURE_H_
#define TESTS_SERVER_STORE_STORE_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/store/snapshot_store.h"
#include "tests/server/store/store_calls.h"
#include "tests/support/redis_server.h"
#include "tests/support/temp_dir.h"

namespace reprise {

struct StoreKind {
  const char* name;
  std::string (*uri)(const TempDir& dir);
};

// One for all tests of a process; each has a prefix of its own.
inline const RedisServer& TheRedisServer() {
  static RedisServer server;
  return server;
}

inline auto AllStores() {
  return ::testing::Values(
      StoreKind{"Memory",
                [](const TempDir&) { return std::string("memory:"); }},
      StoreKind{"RocksDb",
                [](const TempDir& dir) { return "rocksdb:" + dir.Path("db"); }},
      StoreKind{"Redis", [](const TempDir& dir) {
                  return TheRedisServer().Uri("prefix=" + dir.name());
                }});
}

inline std::string StoreKindName(
    const ::testing::TestParamInfo<StoreKind>& info) {
  return info.param.name;
}

class StoreConformance : public ::testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override {
    store_ = OpenGood(GetParam().uri(dir_));
    ASSERT_NE(store_, nullptr);
  }

  absl::Status Put(const SessionKey& key, std::optional<uint64_t> expected,
                   uint64_t revision, std::string_view snapshot = "state",
                   int64_t expires_unix_ms = 0) {
    return PutState(*store_, key, expected, revision, snapshot,
                    expires_unix_ms);
  }

  std::vector<std::string> ListIds(std::string_view tenant,
                                   std::string_view after = "",
                                   int64_t limit = 1000) {
    std::vector<std::string> ids;
    const auto page = store_->List(tenant, after, limit);
    EXPECT_TRUE(page.ok()) << page.status();
    for (const StoredSession& session : *page) ids.push_back(session.id);
    return ids;
  }

  std::vector<SessionKey> Expired(int64_t unix_ms, int64_t limit = 1000) {
    const auto keys = store_->ListExpired(unix_ms, limit);
    EXPECT_TRUE(keys.ok()) << keys.status();
    return *keys;
  }

  TempDir dir_;
  std::unique_ptr<SnapshotStore> store_;
};

}  // namespace reprise

#endif  // TESTS_SERVER_STORE_STORE_FIXTURE_H_
