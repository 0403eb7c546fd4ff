// What a session must be, in a slot or in a snapshot, and the errors that say
// what it is not. For the files that write and read snapshots.
#ifndef ENGINE_STATE_SNAPSHOT_CHECK_H_
#define ENGINE_STATE_SNAPSHOT_CHECK_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/state/snapshot.h"

namespace reprise {

// `status` with the reason that SnapshotFaultOf finds.
absl::Status WithFault(absl::Status status, SnapshotFault fault);

template <typename... Args>
absl::Status SnapshotDataLoss(SnapshotFault fault, const Args&... args) {
  return WithFault(absl::DataLossError(absl::StrCat("snapshot: ", args...)),
                   fault);
}

// Whether the record is one that a session can have: counts within limits,
// tokens inside the vocabulary, occurrences ascending and their weights finite.
// DataLoss.
absl::Status CheckRecord(const SessionRecord& record, int64_t vocab_size);

// Whether the layout has room for the session's tokens. If not, the session is
// whole, and another configuration of this program can read it:
// FailedPrecondition.
absl::Status CheckContext(const SessionRecord& record,
                          const StateLayout& layout);

// Whether `count` elements of `field` are finite numbers. DataLoss.
absl::Status CheckFinite(const StateField& field, const void* elements,
                         StateEncoding encoding, int64_t count);

}  // namespace reprise

#endif  // ENGINE_STATE_SNAPSHOT_CHECK_H_
