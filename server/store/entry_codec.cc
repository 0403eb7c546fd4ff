#include "server/store/entry_codec.h"

#include <concepts>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

constexpr uint8_t kEntryVersion = 2;

// No tenant is so long that an entry key begins with it.
constexpr uint8_t kBlobKeyMark = 0xff;

template <std::unsigned_integral T>
T Swapped(T value) {
  if constexpr (sizeof(T) == 4) return __builtin_bswap32(value);
  if constexpr (sizeof(T) == 8) return __builtin_bswap64(value);
}

// What version 2 added.
absl::Status ReadVersion2(ByteReader& reader, StoredSession& session) {
  ASSIGN_OR_RETURN(const std::string_view request_id, reader.GetSized());
  session.request_id = std::string(request_id);
  ASSIGN_OR_RETURN(session.request_fingerprint, reader.Get<uint64_t>());
  ASSIGN_OR_RETURN(session.outcome_bytes, reader.Get<uint64_t>());
  ASSIGN_OR_RETURN(const uint32_t count, reader.Get<uint32_t>());
  for (uint32_t i = 0; i < count; ++i) {
    StoredCheckpoint checkpoint;
    ASSIGN_OR_RETURN(checkpoint.revision, reader.Get<uint64_t>());
    ASSIGN_OR_RETURN(checkpoint.tokens, reader.Get<uint64_t>());
    ASSIGN_OR_RETURN(checkpoint.snapshot_bytes, reader.Get<uint64_t>());
    ASSIGN_OR_RETURN(checkpoint.unix_ms, reader.Get<int64_t>());
    session.checkpoints.push_back(checkpoint);
  }
  return absl::OkStatus();
}

}  // namespace

std::string TenantPrefix(std::string_view tenant) {
  ByteWriter out;
  out.Put(Swapped(static_cast<uint32_t>(tenant.size())));
  out.PutBytes(tenant);
  return out.Take();
}

std::string EntryKey(const SessionKey& key) {
  return TenantPrefix(key.tenant) + key.id;
}

absl::StatusOr<SessionKey> ParseEntryKey(std::string_view entry_key) {
  ByteReader reader(entry_key);
  ASSIGN_OR_RETURN(const uint32_t swapped, reader.Get<uint32_t>());
  ASSIGN_OR_RETURN(const std::string_view tenant,
                   reader.GetBytes(Swapped(swapped)));
  ASSIGN_OR_RETURN(const std::string_view id,
                   reader.GetBytes(reader.remaining()));
  return SessionKey{std::string(tenant), std::string(id)};
}

std::string ExpiryKey(int64_t expires_unix_ms, std::string_view entry_key) {
  ByteWriter out;
  out.Put(Swapped(static_cast<uint64_t>(expires_unix_ms)));
  out.PutBytes(entry_key);
  return out.Take();
}

absl::StatusOr<ParsedExpiryKey> ParseExpiryKey(std::string_view expiry_key) {
  ByteReader reader(expiry_key);
  ASSIGN_OR_RETURN(const uint64_t swapped, reader.Get<uint64_t>());
  ASSIGN_OR_RETURN(const std::string_view entry_key,
                   reader.GetBytes(reader.remaining()));
  return ParsedExpiryKey{static_cast<int64_t>(Swapped(swapped)), entry_key};
}

std::string SnapshotKey(std::string_view entry_key, uint64_t revision) {
  ByteWriter out;
  out.PutBytes(OutcomeKey(entry_key));
  out.Put(Swapped(revision));
  return out.Take();
}

std::string OutcomeKey(std::string_view entry_key) {
  ByteWriter out;
  out.Put(kBlobKeyMark);
  out.Put(Swapped(static_cast<uint32_t>(entry_key.size())));
  out.PutBytes(entry_key);
  return out.Take();
}

std::string AfterBlobKeys(std::string_view entry_key) {
  ByteWriter out;
  out.PutBytes(SnapshotKey(entry_key, std::numeric_limits<uint64_t>::max()));
  out.Put(uint8_t{0});  // the least of all keys that come after it
  return out.Take();
}

bool IsVersion1(std::string_view entry_bytes) {
  return !entry_bytes.empty() && entry_bytes[0] == 1;
}

std::string EncodeEntry(std::string_view entry_key,
                        const StoredSession& session) {
  ByteWriter out;
  out.Put(kEntryVersion);
  out.Put(session.revision);
  out.Put(session.tokens);
  out.Put(session.snapshot_bytes);
  out.Put(session.created_unix_ms);
  out.Put(session.updated_unix_ms);
  out.Put(session.expires_unix_ms);
  out.Put(session.ttl_ms);
  out.PutSized(session.forked_from);
  out.PutSized(session.request_id);
  out.Put(session.request_fingerprint);
  out.Put(session.outcome_bytes);
  out.Put(static_cast<uint32_t>(session.checkpoints.size()));
  for (const StoredCheckpoint& checkpoint : session.checkpoints) {
    out.Put(checkpoint.revision);
    out.Put(checkpoint.tokens);
    out.Put(checkpoint.snapshot_bytes);
    out.Put(checkpoint.unix_ms);
  }
  out.Put(Crc32c(out.data(), Crc32c(entry_key)));
  return out.Take();
}

absl::StatusOr<StoredSession> DecodeEntry(std::string_view entry_key,
                                          std::string_view bytes) {
  if (bytes.size() < sizeof(uint32_t)) {
    return absl::DataLossError("session entry: too short");
  }
  const size_t payload = bytes.size() - sizeof(uint32_t);
  ByteReader checksum(bytes.substr(payload));
  ASSIGN_OR_RETURN(const uint32_t stored, checksum.Get<uint32_t>());
  if (stored != Crc32c(bytes.substr(0, payload), Crc32c(entry_key))) {
    return absl::DataLossError("session entry: checksum differs");
  }
  ByteReader reader(bytes.substr(0, payload));
  ASSIGN_OR_RETURN(const uint8_t version, reader.Get<uint8_t>());
  if (version == 0 || version > kEntryVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("session entry: version is ", version,
                     ", this program reads 1 to ", kEntryVersion));
  }
  ASSIGN_OR_RETURN(SessionKey key, ParseEntryKey(entry_key));
  StoredSession session;
  session.id = std::move(key.id);
  ASSIGN_OR_RETURN(session.revision, reader.Get<uint64_t>());
  ASSIGN_OR_RETURN(session.tokens, reader.Get<uint64_t>());
  ASSIGN_OR_RETURN(session.snapshot_bytes, reader.Get<uint64_t>());
  ASSIGN_OR_RETURN(session.created_unix_ms, reader.Get<int64_t>());
  ASSIGN_OR_RETURN(session.updated_unix_ms, reader.Get<int64_t>());
  ASSIGN_OR_RETURN(session.expires_unix_ms, reader.Get<int64_t>());
  ASSIGN_OR_RETURN(session.ttl_ms, reader.Get<int64_t>());
  ASSIGN_OR_RETURN(const std::string_view forked_from, reader.GetSized());
  session.forked_from = std::string(forked_from);
  if (version >= 2) RETURN_IF_ERROR(ReadVersion2(reader, session));
  if (reader.remaining() != 0) {
    return absl::DataLossError("session entry: bytes after the last field");
  }
  return session;
}

}  // namespace reprise
