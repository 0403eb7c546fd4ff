// The memory tier: snapshots of sessions that were in a slot a while ago, and
// why each left it.
#ifndef SERVER_SESSION_CACHE_H_
#define SERVER_SESSION_CACHE_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "server/store/snapshot_store.h"

namespace reprise {

// Thread-safe. Everything in it is in the store too, so anything may be
// dropped: snapshots beyond the byte budget, least recently used first, then
// the notes that remain of them beyond a fixed number.
class SessionCache {
 public:
  explicit SessionCache(int64_t capacity_bytes)
      : capacity_bytes_(capacity_bytes) {}

  struct Cached {
    StoredSession stored;
    // shared: a reader goes on with it while it is dropped here. Null if only
    // the note is left, and `stored` is empty then.
    std::shared_ptr<const std::string> snapshot;
    std::string note;  // why the session is in no slot, for people
  };

  // Whether a snapshot of this size would be kept.
  bool Fits(uint64_t bytes) const;
  // Keeps the snapshot of a committed revision in place of an older one.
  void Put(const SessionKey& key, const StoredSession& stored,
           std::string snapshot, const std::string& note);
  // Changes what is said of a session and leaves its snapshot, if it is here.
  void Note(const SessionKey& key, const std::string& note);
  // Follows a change of the stored entry alone.
  void UpdateStored(const SessionKey& key, const StoredSession& stored);
  // Drops snapshot and note.
  void Erase(const SessionKey& key);

  std::optional<Cached> Find(const SessionKey& key);
  bool HasSnapshot(const SessionKey& key) const;
  // Whether every session that has left a slot since the start is noted.
  bool complete() const;
  int64_t bytes() const;
  int64_t capacity_bytes() const { return capacity_bytes_; }

 private:
  struct Item {
    Cached cached;
    std::list<SessionKey>::iterator place;  // in snapshots_ or notes_
  };

  void EraseLocked(const SessionKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes `item` the latest of the list it belongs to.
  void Link(const SessionKey& key, Item& item)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Shrink() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t capacity_bytes_;
  mutable Mutex mu_;
  // An item is in exactly one list: snapshots_ if it has one, else notes_.
  std::map<SessionKey, Item> items_ ABSL_GUARDED_BY(mu_);
  std::list<SessionKey> snapshots_ ABSL_GUARDED_BY(mu_);  // oldest first
  std::list<SessionKey> notes_ ABSL_GUARDED_BY(mu_);      // oldest first
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool complete_ ABSL_GUARDED_BY(mu_) = true;
};

}  // namespace reprise

#endif  // SERVER_SESSION_CACHE_H_
