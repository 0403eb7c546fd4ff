// Sessions in this process, gone with it.
#include <map>
#include <set>
#include <utility>

#include "engine/base/mutex.h"
#include "engine/base/status_macros.h"
#include "server/store/snapshot_store.h"

namespace reprise {
namespace {

class MemoryStore : public SnapshotStore {
 public:
  absl::Status Put(const SessionKey& key,
                   std::optional<uint64_t> expected_revision,
                   const StoredSession& session,
                   std::string_view snapshot) override {
    // Copied before the lock is taken, and freed after it is given back.
    auto bytes = std::make_shared<const std::string>(snapshot);
    MutexLock lock(mu_);
    const auto it = sessions_.find(key);
    const bool exists = it != sessions_.end();
    RETURN_IF_ERROR(CheckRevision(
        key.id,
        exists ? std::optional(it->second.entry.revision) : std::nullopt,
        expected_revision));
    Item& item = exists ? it->second : sessions_[key];
    bytes_ += bytes->size();
    bytes_ -= item.entry.snapshot_bytes;
    SetEntry(key, session, bytes->size(), item);
    item.snapshot.swap(bytes);
    return absl::OkStatus();
  }

  absl::Status PutEntry(const SessionKey& key, uint64_t expected_revision,
                        const StoredSession& session) override {
    MutexLock lock(mu_);
    const auto it = sessions_.find(key);
    if (it == sessions_.end()) {
      return CheckRevision(key.id, std::nullopt, expected_revision);
    }
    Item& item = it->second;
    RETURN_IF_ERROR(
        CheckRevision(key.id, item.entry.revision, expected_revision));
    SetEntry(key, session, item.entry.snapshot_bytes, item);
    return absl::OkStatus();
  }

  absl::StatusOr<StoredSession> GetEntry(const SessionKey& key) override {
    MutexLock lock(mu_);
    const auto it = sessions_.find(key);
    if (it == sessions_.end()) return NoSuchSessionError(key);
    return it->second.entry;
  }

  absl::Status Get(const SessionKey& key, StoredSession* session,
                   std::string* snapshot) override {
    std::shared_ptr<const std::string> bytes;
    {
      MutexLock lock(mu_);
      const auto it = sessions_.find(key);
      if (it == sessions_.end()) return NoSuchSessionError(key);
      *session = it->second.entry;
      bytes = it->second.snapshot;
    }
    *snapshot = *bytes;
    return absl::OkStatus();
  }

  absl::Status Delete(const SessionKey& key) override {
    MutexLock lock(mu_);
    const auto it = sessions_.find(key);
    if (it == sessions_.end()) return NoSuchSessionError(key);
    expiry_.erase({it->second.entry.expires_unix_ms, key});
    bytes_ -= it->second.entry.snapshot_bytes;
    sessions_.erase(it);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<StoredSession>> List(std::string_view tenant,
                                                  std::string_view after,
                                                  int64_t limit) override {
    std::vector<StoredSession> page;
    MutexLock lock(mu_);
    auto it = sessions_.upper_bound({std::string(tenant), std::string(after)});
    while (it != sessions_.end() && it->first.tenant == tenant &&
           static_cast<int64_t>(page.size()) < limit) {
      page.push_back(it->second.entry);
      ++it;
    }
    return page;
  }

  absl::StatusOr<std::vector<SessionKey>> ListExpired(int64_t unix_ms,
                                                      int64_t limit) override {
    std::vector<SessionKey> keys;
    MutexLock lock(mu_);
    for (const auto& [expires, key] : expiry_) {
      if (expires > unix_ms || static_cast<int64_t>(keys.size()) >= limit) {
        break;
      }
      keys.push_back(key);
    }
    return keys;
  }

  absl::StatusOr<Usage> GetUsage() override {
    MutexLock lock(mu_);
    return Usage{bytes_, sessions_.size()};
  }

 private:
  struct Item {
    StoredSession entry;
    // shared: a reader copies it after it has given the lock back.
    std::shared_ptr<const std::string> snapshot;
  };

  void SetEntry(const SessionKey& key, const StoredSession& session,
                uint64_t snapshot_bytes, Item& item)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    expiry_.erase({item.entry.expires_unix_ms, key});
    item.entry = session;
    item.entry.id = key.id;
    item.entry.snapshot_bytes = snapshot_bytes;
    if (session.expires_unix_ms > 0) {
      expiry_.insert({session.expires_unix_ms, key});
    }
  }

  Mutex mu_;
  std::map<SessionKey, Item> sessions_ ABSL_GUARDED_BY(mu_);
  // When each session that has an expiry will expire.
  std::set<std::pair<int64_t, SessionKey>> expiry_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;  // of all snapshots
};

}  // namespace

std::unique_ptr<SnapshotStore> NewMemoryStore() {
  return std::make_unique<MemoryStore>();
}

}  // namespace reprise
