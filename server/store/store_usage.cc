#include "server/store/store_usage.h"

#include "server/store/store_rules.h"

namespace reprise {

void StoreUsage::Change(std::string_view tenant, const StoredSession* old,
                        const StoredSession* now) {
  MutexLock lock(mu_);
  const auto it =
      tenants_.try_emplace(std::string(tenant), SnapshotStore::Usage()).first;
  for (SnapshotStore::Usage* usage : {&all_, &it->second}) {
    if (old != nullptr) {
      usage->bytes -= BytesOf(*old);
      --usage->sessions;
    }
    if (now != nullptr) {
      usage->bytes += BytesOf(*now);
      ++usage->sessions;
    }
  }
  if (it->second.sessions == 0) tenants_.erase(it);
}

SnapshotStore::Usage StoreUsage::All() const {
  MutexLock lock(mu_);
  return all_;
}

SnapshotStore::Usage StoreUsage::Of(std::string_view tenant) const {
  MutexLock lock(mu_);
  const auto it = tenants_.find(tenant);
  return it == tenants_.end() ? SnapshotStore::Usage() : it->second;
}

}  // namespace reprise
