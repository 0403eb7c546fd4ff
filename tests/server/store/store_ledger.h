// Puts revisions into a store that fails now and then, and knows what may be in
// it.
#ifndef TESTS_SERVER_STORE_STORE_LEDGER_H_
#define TESTS_SERVER_STORE_STORE_LEDGER_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>

#include "server/store/snapshot_store.h"

namespace reprise {

// Used by one thread.
class StoreLedger {
 public:
  explicit StoreLedger(size_t snapshot_bytes)
      : snapshot_bytes_(snapshot_bytes) {}

  // Puts the session's next revision, the first one if there is none. After a
  // Put that failed, asks the store first which revision it has.
  absl::Status PutNext(SnapshotStore& store, const std::string& id) {
    Known& known = sessions_[id];
    if (known.in_doubt) {
      const absl::StatusOr<StoredSession> entry = store.GetEntry({"t", id});
      if (!entry.ok() && !absl::IsNotFound(entry.status())) {
        return entry.status();
      }
      Settle(id, entry.ok() ? entry->revision : 0);
    }
    StoredSession session;
    session.revision = known.revision + 1;
    const absl::Status status =
        store
            .Put({"t", id},
                 known.revision == 0 ? std::nullopt
                                     : std::optional(known.revision),
                 session, SnapshotOf(id, session.revision), {})
            .status();
    if (status.ok()) {
      ++known.revision;
      ++acknowledged_;
    } else {
      known.in_doubt = true;
    }
    return status;
  }

  // All sessions are at the revision that was acknowledged last, or at the next
  // one if its Put failed; and nothing else is there.
  void Check(SnapshotStore& store) {
    uint64_t there = 0;
    for (auto& [id, known] : sessions_) {
      StoredSession session;
      std::string snapshot;
      const absl::Status status = store.Get({"t", id}, &session, &snapshot);
      if (absl::IsNotFound(status)) {
        EXPECT_EQ(known.revision, 0u) << id << " is lost";
        continue;
      }
      ASSERT_TRUE(status.ok()) << id << ": " << status;
      Settle(id, session.revision);
      EXPECT_TRUE(snapshot == SnapshotOf(id, session.revision)) << id;
      ++there;
    }
    EXPECT_EQ(store.GetUsage()->sessions, there);
    EXPECT_EQ(store.List("t", "", 10'000)->size(), there);
  }

  // While the store cannot write: a session whose last Put failed may be
  // unreadable, as long as it is not known what became of that.
  void CheckReadable(SnapshotStore& store) {
    for (const auto& [id, known] : sessions_) {
      StoredSession session;
      std::string snapshot;
      const absl::Status status = store.Get({"t", id}, &session, &snapshot);
      if (known.in_doubt && absl::IsUnavailable(status)) continue;
      ASSERT_TRUE(status.ok()) << id << ": " << status;
      EXPECT_EQ(session.revision, known.revision);
      EXPECT_TRUE(snapshot == SnapshotOf(id, session.revision)) << id;
    }
  }

  // Whether the store has a state that there was: each session at any revision
  // up to the acknowledged one (one more if in doubt), which is taken over.
  // Returns how many acknowledged revisions are missing.
  uint64_t CountLost(SnapshotStore& store) {
    uint64_t lost = 0;
    for (auto& [id, known] : sessions_) {
      StoredSession session;
      std::string snapshot;
      const absl::Status status = store.Get({"t", id}, &session, &snapshot);
      const uint64_t revision = status.ok() ? session.revision : 0;
      EXPECT_TRUE(status.ok() || absl::IsNotFound(status)) << status;
      EXPECT_LE(revision, known.revision + (known.in_doubt ? 1 : 0));
      EXPECT_TRUE(!status.ok() || snapshot == SnapshotOf(id, revision)) << id;
      if (revision < known.revision) lost += known.revision - revision;
      known = {.revision = revision};
    }
    return lost;
  }

  // After the session was deleted.
  void Forget(const std::string& id) { sessions_.erase(id); }

  uint64_t acknowledged() const { return acknowledged_; }

 private:
  struct Known {
    uint64_t revision = 0;  // acknowledged; 0 = no session
    bool in_doubt = false;  // the next one may be there
  };

  std::string SnapshotOf(const std::string& id, uint64_t revision) const {
    std::string bytes = id + " at " + std::to_string(revision) + ":";
    bytes.resize(snapshot_bytes_ + revision % 7,
                 static_cast<char>('a' + revision % 26));
    return bytes;
  }

  void Settle(const std::string& id, uint64_t revision) {
    Known& known = sessions_[id];
    EXPECT_TRUE(revision == known.revision ||
                (known.in_doubt && revision == known.revision + 1))
        << id << " is at " << revision << ", was acknowledged at "
        << known.revision;
    known = {.revision = revision};
  }

  const size_t snapshot_bytes_;
  std::map<std::string, Known> sessions_;
  uint64_t acknowledged_ = 0;
};

}  // namespace reprise

#endif  // TESTS_SERVER_STORE_STORE_LEDGER_H_
