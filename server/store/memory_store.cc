// Sessions in this process, gone with it.
#include <map>
#include <set>
#include <utility>

#include "engine/base/mutex.h"
#include "engine/base/status_macros.h"
#include "server/store/snapshot_store.h"
#include "server/store/store_rules.h"
#include "server/store/store_usage.h"

namespace reprise {
namespace {

// shared: a reader copies it after it has given the lock back.
using Bytes = std::shared_ptr<const std::string>;

class MemoryStore : public SnapshotStore {
 public:
  absl::StatusOr<StoredSession> Put(const SessionKey& key,
                                    std::optional<uint64_t> expected_revision,
                                    const StoredSession& session,
                                    std::string_view snapshot,
                                    const PutOptions& options) override {
    // Copied before the lock is taken, and freed after it is given back.
    auto bytes = std::make_shared<const std::string>(snapshot);
    auto outcome = std::make_shared<const std::string>(options.outcome);
    std::vector<Bytes> dropped;
    MutexLock lock(mu_);
    const auto it = sessions_.find(key);
    const StoredSession* const old =
        it != sessions_.end() ? &it->second.entry : nullptr;
    RETURN_IF_ERROR(CheckReplaces(key, old, expected_revision, session));
    StoredSession now = EntryAfterPut(key, old, session, snapshot, options);
    Item& item = old != nullptr ? it->second : sessions_[key];
    if (old != nullptr) {
      for (const uint64_t revision : DroppedRevisions(*old, now)) {
        dropped.push_back(std::move(item.snapshots.at(revision)));
        item.snapshots.erase(revision);
      }
    }
    usage_.Change(key.tenant, old, &now);
    SetEntry(key, now, item);
    item.snapshots[now.revision].swap(bytes);
    item.outcome.swap(outcome);
    return now;
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
        CheckReplaces(key, &item.entry, expected_revision, session));
    SetEntry(key, EntryAfterPutEntry(item.entry, session), item);
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
    Bytes bytes;
    {
      MutexLock lock(mu_);
      const auto it = sessions_.find(key);
      if (it == sessions_.end()) return NoSuchSessionError(key);
      *session = it->second.entry;
      bytes = it->second.snapshots.at(session->revision);
    }
    *snapshot = *bytes;
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> GetSnapshot(const SessionKey& key,
                                          uint64_t revision) override {
    Bytes bytes;
    {
      MutexLock lock(mu_);
      const auto it = sessions_.find(key);
      if (it == sessions_.end()) return NoSuchSessionError(key);
      RETURN_IF_ERROR(SnapshotBytesAt(it->second.entry, revision).status());
      bytes = it->second.snapshots.at(revision);
    }
    return *bytes;
  }

  absl::StatusOr<std::string> GetOutcome(const SessionKey& key,
                                         uint64_t revision) override {
    Bytes bytes;
    {
      MutexLock lock(mu_);
      const auto it = sessions_.find(key);
      if (it == sessions_.end()) return NoSuchSessionError(key);
      RETURN_IF_ERROR(
          CheckRevision(key.id, it->second.entry.revision, revision));
      bytes = it->second.outcome;
    }
    return *bytes;
  }

  absl::Status Delete(const SessionKey& key) override {
    std::map<SessionKey, Item>::node_type deleted;
    MutexLock lock(mu_);
    const auto it = sessions_.find(key);
    if (it == sessions_.end()) return NoSuchSessionError(key);
    expiry_.erase({it->second.entry.expires_unix_ms, key});
    usage_.Change(key.tenant, &it->second.entry, nullptr);
    deleted = sessions_.extract(it);
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

  absl::StatusOr<Usage> GetUsage() override { return usage_.All(); }

  absl::StatusOr<Usage> GetTenantUsage(std::string_view tenant) override {
    return usage_.Of(tenant);
  }

 private:
  struct Item {
    StoredSession entry;
    std::map<uint64_t, Bytes> snapshots;  // by revision, the current one's too
    Bytes outcome;
  };

  void SetEntry(const SessionKey& key, const StoredSession& entry, Item& item)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    expiry_.erase({item.entry.expires_unix_ms, key});
    item.entry = entry;
    if (entry.expires_unix_ms > 0) expiry_.insert({entry.expires_unix_ms, key});
  }

  Mutex mu_;
  std::map<SessionKey, Item> sessions_ ABSL_GUARDED_BY(mu_);
  // When each session that has an expiry will expire.
  std::set<std::pair<int64_t, SessionKey>> expiry_ ABSL_GUARDED_BY(mu_);
  StoreUsage usage_;  // synchronises itself
};

}  // namespace

std::unique_ptr<SnapshotStore> NewMemoryStore() {
  return std::make_unique<MemoryStore>();
}

}  // namespace reprise
