// What tests call a store with.
#ifndef TESTS_SERVER_STORE_STORE_CALLS_H_
#define TESTS_SERVER_STORE_STORE_CALLS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/store/snapshot_store.h"

namespace reprise {

inline const SessionKey kKey{"t", "id"};

// Of the bytes of checkpoints.
inline constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

inline std::unique_ptr<SnapshotStore> OpenGood(
    const std::string& uri, std::optional<Durability> durability = {}) {
  auto store = OpenStore(uri, durability);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

inline std::unique_ptr<SnapshotStore> OpenRocksDb(
    const std::string& path, std::optional<Durability> durability = {}) {
  return OpenGood("rocksdb:" + path, durability);
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

}  // namespace reprise

#endif  // TESTS_SERVER_STORE_STORE_CALLS_H_
