// Keys and entries as bytes, for stores that keep both in a key-value database.
//
//   entry key   length of the tenant (u32, big-endian) | tenant | id
//   expiry key  expires_unix_ms (u64, big-endian) | entry key
//   entry       version (u8) | numbers | forked_from | CRC-32C of key and entry
//
// Big-endian, so that the order of the bytes is that of the numbers. With the
// length in front, no tenant's keys lie among another's, whatever bytes tenants
// and ids hold.
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

// All of the session but its id, which is in the key.
std::string EncodeEntry(std::string_view entry_key,
                        const StoredSession& session);
// DataLoss if it is damaged or of another key; FailedPrecondition if it is
// whole but of another version, a newer program's.
absl::StatusOr<StoredSession> DecodeEntry(std::string_view entry_key,
                                          std::string_view bytes);

}  // namespace reprise

#endif  // SERVER_STORE_ENTRY_CODEC_H_
