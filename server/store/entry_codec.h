// Keys and entries as bytes, for stores that keep both in a key-value database.
//
//   entry key     length of the tenant (u32, big-endian) | tenant | id
//   expiry key    expires_unix_ms (u64, big-endian) | entry key
//   outcome key   0xff | length of the entry key (u32, big-endian) | entry key
//   snapshot key  outcome key | revision (u64, big-endian)
//   entry         version (u8) | numbers | forked_from | request_id |
//                 fingerprint, bytes of the outcome | checkpoints (counted) |
//                 CRC-32C of key and entry
//
// Big-endian, so that the order of the bytes is that of the numbers. With the
// length in front, no tenant's keys lie among another's, whatever bytes tenants
// and ids hold; nor any session's among another's.
//
// Entries of version 1 end after forked_from. Their snapshot lies under the
// entry key itself.
#ifndef SERVER_STORE_ENTRY_CODEC_H_
#define SERVER_STORE_ENTRY_CODEC_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/store/snapshot_store.h"

namespace reprise {

std::string EntryKey(const SessionKey& key);
// What all entry keys of a tenant, and no others, begin with.
std::string TenantPrefix(std::string_view tenant);
// DataLoss if it is not an entry key.
absl::StatusOr<SessionKey> ParseEntryKey(std::string_view entry_key);

std::string ExpiryKey(int64_t expires_unix_ms, std::string_view entry_key);
struct ParsedExpiryKey {
  int64_t expires_unix_ms = 0;
  std::string_view entry_key;  // points into what was parsed
};
// DataLoss if it is not an expiry key.
absl::StatusOr<ParsedExpiryKey> ParseExpiryKey(std::string_view expiry_key);

// Where what is too large for the entry lies: the snapshot of a revision, and
// the outcome of the current one. All these keys of a session are from its
// OutcomeKey on, and before AfterBlobKeys; none is an entry key.
std::string SnapshotKey(std::string_view entry_key, uint64_t revision);
std::string OutcomeKey(std::string_view entry_key);
std::string AfterBlobKeys(std::string_view entry_key);

// Of an entry that DecodeEntry has accepted.
bool IsVersion1(std::string_view entry_bytes);

// All of the session but its id, which is in the key.
std::string EncodeEntry(std::string_view entry_key,
                        const StoredSession& session);
// DataLoss if it is damaged or of another key; FailedPrecondition if it is
// whole but of another version, a newer program's.
absl::StatusOr<StoredSession> DecodeEntry(std::string_view entry_key,
                                          std::string_view bytes);

}  // namespace reprise

#endif  // SERVER_STORE_ENTRY_CODEC_H_
