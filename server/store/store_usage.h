// What the sessions of a store take, in all and by tenant. For stores that
// count in memory.
#ifndef SERVER_STORE_STORE_USAGE_H_
#define SERVER_STORE_STORE_USAGE_H_

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "server/store/snapshot_store.h"

namespace reprise {

// Thread-safe.
class StoreUsage {
 public:
  // A session's entry was `old` and is `now`; null: there was, or is, none. An
  // entry that cannot be read counts as an empty one.
  void Change(std::string_view tenant, const StoredSession* old,
              const StoredSession* now);

  SnapshotStore::Usage All() const;
  SnapshotStore::Usage Of(std::string_view tenant) const;

 private:
  mutable Mutex mu_;
  SnapshotStore::Usage all_ ABSL_GUARDED_BY(mu_);
  // Of those that have sessions.
  std::map<std::string, SnapshotStore::Usage, std::less<>> tenants_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace reprise

#endif  // SERVER_STORE_STORE_USAGE_H_
