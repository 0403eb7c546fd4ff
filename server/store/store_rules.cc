#include "server/store/store_rules.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

std::string RevisionText(std::optional<uint64_t> revision) {
  return revision.has_value() ? absl::StrCat("revision ", *revision) : "none";
}

std::string SessionText(std::string_view id) {
  return absl::StrCat("session ", absl::CHexEscape(ToAbsl(id)));
}

// "0, 3, 5..9 and 11": checkpoints mostly follow one another, and what every
// session begins with is always there.
std::string KeptText(const StoredSession& session) {
  std::vector<uint64_t> kept = {0};
  for (const StoredCheckpoint& checkpoint : session.checkpoints) {
    kept.push_back(checkpoint.revision);
  }
  kept.push_back(session.revision);
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  std::string text;
  for (size_t first = 0; first < kept.size();) {
    size_t last = first;
    while (last + 1 < kept.size() && kept[last + 1] == kept[last] + 1) ++last;
    const bool ends = last + 1 == kept.size();
    absl::StrAppend(&text,
                    first == 0 ? ""
                    : ends     ? " and "
                               : ", ",
                    kept[first]);
    if (last > first) absl::StrAppend(&text, "..", kept[last]);
    first = last + 1;
  }
  return text;
}

StoredCheckpoint CheckpointOf(const StoredSession& session) {
  return {session.revision, session.tokens, session.snapshot_bytes,
          session.updated_unix_ms};
}

// Null if the revision is not kept.
const uint64_t* FindSnapshotBytes(const StoredSession& session,
                                  uint64_t revision) {
  if (revision == session.revision) return &session.snapshot_bytes;
  for (const StoredCheckpoint& checkpoint : session.checkpoints) {
    if (checkpoint.revision == revision) return &checkpoint.snapshot_bytes;
  }
  return nullptr;
}

}  // namespace

absl::Status CheckRevision(std::string_view id,
                           std::optional<uint64_t> stored_revision,
                           std::optional<uint64_t> expected_revision) {
  if (stored_revision == expected_revision) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(
      SessionText(id), ": stored is ", RevisionText(stored_revision),
      ", expected ", RevisionText(expected_revision)));
}

absl::Status CheckReplaces(const SessionKey& key, const StoredSession* old,
                           std::optional<uint64_t> expected_revision,
                           const StoredSession& session) {
  RETURN_IF_ERROR(CheckRevision(
      key.id, old != nullptr ? std::optional(old->revision) : std::nullopt,
      expected_revision));
  if (old == nullptr || old->created_unix_ms == session.created_unix_ms) {
    return absl::OkStatus();
  }
  return absl::AbortedError(
      absl::StrCat(SessionText(key.id), ": was deleted and made again at ",
                   old->created_unix_ms, ", this is of the one made at ",
                   session.created_unix_ms, " (Unix ms)"));
}

StoredSession EntryAfterPut(const SessionKey& key, const StoredSession* old,
                            const StoredSession& session,
                            std::string_view snapshot,
                            const SnapshotStore::PutOptions& options) {
  StoredSession now = session;
  now.id = key.id;
  now.snapshot_bytes = snapshot.size();
  now.outcome_bytes = options.outcome.size();
  now.checkpoints.clear();
  if (old == nullptr) return now;
  std::vector<StoredCheckpoint> all = old->checkpoints;
  all.push_back(CheckpointOf(*old));
  std::erase_if(all, [&](const StoredCheckpoint& checkpoint) {
    return checkpoint.revision >= now.revision;
  });
  uint64_t room = options.checkpoint_bytes;
  size_t first = all.size();
  while (first > 0 && all.size() - first < kMaxCheckpoints &&
         all[first - 1].snapshot_bytes <= room) {
    room -= all[--first].snapshot_bytes;
  }
  // Without a budget not even an empty snapshot is kept.
  if (options.checkpoint_bytes == 0) first = all.size();
  now.checkpoints.assign(all.begin() + static_cast<ptrdiff_t>(first),
                         all.end());
  return now;
}

StoredSession EntryAfterPutEntry(const StoredSession& old,
                                 const StoredSession& session) {
  StoredSession now = session;
  now.id = old.id;
  now.revision = old.revision;
  now.snapshot_bytes = old.snapshot_bytes;
  now.outcome_bytes = old.outcome_bytes;
  now.checkpoints = old.checkpoints;
  return now;
}

std::vector<uint64_t> DroppedRevisions(const StoredSession& old,
                                       const StoredSession& now) {
  std::vector<uint64_t> dropped;
  for (const StoredCheckpoint& checkpoint : old.checkpoints) {
    if (FindSnapshotBytes(now, checkpoint.revision) == nullptr) {
      dropped.push_back(checkpoint.revision);
    }
  }
  if (FindSnapshotBytes(now, old.revision) == nullptr) {
    dropped.push_back(old.revision);
  }
  return dropped;
}

uint64_t BytesOf(const StoredSession& session) {
  uint64_t bytes = session.snapshot_bytes + session.outcome_bytes;
  for (const StoredCheckpoint& checkpoint : session.checkpoints) {
    bytes += checkpoint.snapshot_bytes;
  }
  return bytes;
}

absl::StatusOr<uint64_t> SnapshotBytesAt(const StoredSession& session,
                                         uint64_t revision) {
  const uint64_t* const bytes = FindSnapshotBytes(session, revision);
  if (bytes != nullptr) return *bytes;
  return absl::OutOfRangeError(
      absl::StrCat(SessionText(session.id), ": revision ", revision,
                   " is not kept; there is ", KeptText(session)));
}

}  // namespace reprise
