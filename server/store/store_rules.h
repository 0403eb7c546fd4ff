// What all stores decide alike: the compare of compare-and-set, which
// revisions a Put keeps, what a session takes. For the stores alone.
#ifndef SERVER_STORE_STORE_RULES_H_
#define SERVER_STORE_STORE_RULES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/snapshot_store.h"

namespace reprise {

// Of a session, whatever the budget: its entry names them all, and is read
// with every page of a list.
inline constexpr size_t kMaxCheckpoints = 128;

// The compare of compare-and-set: OK if they are equal, else Aborted, naming
// both; none = no such session.
absl::Status CheckRevision(std::string_view id,
                           std::optional<uint64_t> stored_revision,
                           std::optional<uint64_t> expected_revision);

// Whether a write may replace `old`, null if there is none: CheckRevision; and
// Aborted if `session` was created at another time than what is stored, which
// was deleted and made again then.
absl::Status CheckReplaces(const SessionKey& key, const StoredSession* old,
                           std::optional<uint64_t> expected_revision,
                           const StoredSession& session);

// The entry that a Put leaves. `old` is the one it replaces, null if none; its
// snapshot becomes a checkpoint, and of all these the latest stay that fit into
// the budget together, kMaxCheckpoints at most. Only revisions below the new
// one are kept: a revision that is put again replaces what was there.
StoredSession EntryAfterPut(const SessionKey& key, const StoredSession* old,
                            const StoredSession& session,
                            std::string_view snapshot,
                            const SnapshotStore::PutOptions& options);

// The entry that a PutEntry leaves in place of `old`.
StoredSession EntryAfterPutEntry(const StoredSession& old,
                                 const StoredSession& session);

// The revisions whose snapshots `old` keeps, its current one's too, and `now`
// does not.
std::vector<uint64_t> DroppedRevisions(const StoredSession& old,
                                       const StoredSession& now);

// Of its snapshot, its checkpoints and its outcome together.
uint64_t BytesOf(const StoredSession& session);

// The bytes that the snapshot of this revision has; OutOfRange, naming those
// that are kept, if it is not.
absl::StatusOr<uint64_t> SnapshotBytesAt(const StoredSession& session,
                                         uint64_t revision);

}  // namespace reprise

#endif  // SERVER_STORE_STORE_RULES_H_
