#include "server/session_shared.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace reprise {
namespace {

// A session that was deleted and made again may be at the same revision, but
// was created at another time.
bool SameCommit(const StoredSession& a, const StoredSession& b) {
  return a.revision == b.revision && a.created_unix_ms == b.created_unix_ms &&
         a.updated_unix_ms == b.updated_unix_ms && a.tokens == b.tokens &&
         a.snapshot_bytes == b.snapshot_bytes;
}

}  // namespace

absl::Status DropIfOutdated(SnapshotStore& store, SessionCache& cache,
                            SessionClaim& claim) {
  if (!store.shared()) return absl::OkStatus();
  const SessionKey& key = claim.key();
  std::optional<StoredSession> known;
  if (claim.slot) {
    known = claim.stored;
  } else if (const auto cached = cache.Find(key);
             cached.has_value() && cached->snapshot != nullptr) {
    known = cached->stored;
  }
  if (!known.has_value()) return absl::OkStatus();
  absl::StatusOr<StoredSession> stored = store.GetEntry(key);
  if (stored.ok() && SameCommit(*known, *stored)) {
    // Its time to live may be another.
    if (claim.slot) {
      claim.stored = *std::move(stored);
    } else {
      cache.UpdateStored(key, *stored);
    }
    return absl::OkStatus();
  }
  if (!stored.ok() && !absl::IsNotFound(stored.status())) {
    return stored.status();
  }
  claim.slot = StateSlot();
  claim.stored.reset();
  cache.Erase(key);
  if (stored.ok()) {
    cache.Note(key, absl::StrCat("another server has committed revision ",
                                 stored->revision));
  }
  return absl::OkStatus();
}

}  // namespace reprise
