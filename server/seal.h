// A snapshot in the hands of a client: sealed, so that what comes back is what
// was given out, by this server or by one that has the same keys, and is for
// the same tenant and model, and not too old. docs/export.md has the format.
//
// The seal goes around a snapshot of any version (engine/state/snapshot.h) and
// knows nothing of what is in it.
#ifndef SERVER_SEAL_H_
#define SERVER_SEAL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/state/snapshot.h"
#include "server/byte_budget.h"
#include "server/metrics.h"
#include "server/seal_keys.h"

namespace reprise {

// What a seal says of its snapshot. Readable by whoever has it, but not to be
// changed.
struct SealLabel {
  std::string tenant;
  std::string session;  // that it came from; empty if from none
  uint64_t model = 0;   // fingerprint
  uint64_t revision = 0;
  int64_t created_unix_ms = 0;
  int64_t expires_unix_ms = 0;  // 0 = never
};

// A snapshot for a client, and what the client is told of it.
struct SealedState {
  SealLabel label;
  uint64_t tokens = 0;  // of the conversation
  SnapshotEncoding encoding;
  std::string bytes;        // sealed
  ByteBudget::Share share;  // for them, of ClientStates::sealed_bytes
};

// Who opens a seal.
struct SealReader {
  std::string_view tenant;
  uint64_t model = 0;
  int64_t now_unix_ms = 0;
};

// How many bytes SealSnapshot makes of so many.
size_t SealedBytes(const SealKeys& keys, const SealLabel& label,
                   size_t snapshot_bytes);

// Seals with the first key. Internal if OpenSSL fails.
absl::StatusOr<std::string> SealSnapshot(const SealKeys& keys,
                                         const SealLabel& label,
                                         std::string_view snapshot);

struct OpenedSnapshot {
  SealLabel label;
  std::string snapshot;
};

// Whether these bytes begin as a seal does, or as much of one as they have.
// InvalidArgument if they are something else, or nothing; PermissionDenied if
// they are a snapshot without a seal.
absl::Status CheckBeginsAsSeal(std::string_view bytes);

// Checked in this order; nothing of the snapshot is shown before all is well.
//  * CheckBeginsAsSeal;
//  * DataLoss: cut, too long, not of the format;
//  * FailedPrecondition: another version of the format;
//  * PermissionDenied: with a key that is not among `keys`;
//  * DataLoss: changed, or sealed with another key of that id;
//  * PermissionDenied: another tenant's;
//  * FailedPrecondition: of another model; expired.
absl::StatusOr<OpenedSnapshot> OpenSnapshot(const SealKeys& keys,
                                            std::string_view sealed,
                                            const SealReader& reader);

// The reason of an error of OpenSnapshot, for metrics; none for others.
std::optional<SnapshotFailure> SealFailureOf(const absl::Status& status);

}  // namespace reprise

#endif  // SERVER_SEAL_H_
