#include "server/seal.h"

#include <algorithm>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/state/snapshot_format.h"

namespace reprise {
namespace {

// docs/export.md explains these.
constexpr std::string_view kMagic = "RPSE";
constexpr uint32_t kSealVersion = 1;
constexpr size_t kFixedBytes = 68;  // up to the nonce, and with it
constexpr size_t kMaxNameBytes = 128;

constexpr absl::string_view kFailureUrl = "reprise/seal_failure";

template <typename... Parts>
absl::Status Refuse(absl::StatusCode code, SnapshotFailure failure,
                    const Parts&... parts) {
  absl::Status status(code, absl::StrCat("snapshot: ", parts...));
  const char digit = static_cast<char>('0' + static_cast<int>(failure));
  status.SetPayload(kFailureUrl, absl::Cord(absl::string_view(&digit, 1)));
  return status;
}

template <typename... Parts>
absl::Status Damaged(SnapshotFailure failure, const Parts&... parts) {
  return Refuse(absl::StatusCode::kDataLoss, failure, parts...);
}

// A seal's header as it lies in front of the payload.
struct Header {
  SealLabel label;
  std::string key_id;
  SealAlgorithm algorithm = SealAlgorithm::kAes256Gcm;
  SealNonce nonce{};
  uint64_t payload_bytes = 0;
  size_t header_bytes = 0;
};

size_t HeaderBytes(const SealLabel& label, const std::string& key_id) {
  return kFixedBytes + 3 * sizeof(uint32_t) + key_id.size() +
         label.tenant.size() + label.session.size();
}

void PutHeader(const Header& header, ByteWriter& out) {
  const SealLabel& label = header.label;
  out.PutBytes(kMagic);
  out.Put(kSealVersion);
  out.Put(static_cast<uint32_t>(header.header_bytes));
  out.Put(static_cast<uint32_t>(header.algorithm));
  out.Put(header.payload_bytes);
  out.Put(label.model);
  out.Put(label.revision);
  out.Put(label.created_unix_ms);
  out.Put(label.expires_unix_ms);
  out.PutBytes({reinterpret_cast<const char*>(header.nonce.data()),
                header.nonce.size()});
  out.PutSized(header.key_id);
  out.PutSized(label.tenant);
  out.PutSized(label.session);
}

// A name of at most `most` bytes.
absl::StatusOr<std::string> ReadName(ByteReader& reader, const char* what,
                                     size_t most) {
  ASSIGN_OR_RETURN(const std::string_view name, reader.GetSized());
  if (name.size() <= most) return std::string(name);
  return absl::DataLossError(
      absl::StrCat(what, " has ", name.size(), " bytes, at most ", most));
}

absl::StatusOr<Header> ReadHeader(ByteReader& reader) {
  Header header;
  SealLabel& label = header.label;
  ASSIGN_OR_RETURN(const uint32_t header_bytes, reader.Get<uint32_t>());
  ASSIGN_OR_RETURN(const uint32_t algorithm, reader.Get<uint32_t>());
  header.algorithm = static_cast<SealAlgorithm>(algorithm);
  if (header.algorithm != SealAlgorithm::kAes256Gcm &&
      header.algorithm != SealAlgorithm::kHmacSha256) {
    return absl::DataLossError(absl::StrCat("algorithm is ", algorithm,
                                            ", must be 1 (aes-256-gcm) or 2 "
                                            "(hmac-sha-256)"));
  }
  ASSIGN_OR_RETURN(header.payload_bytes, reader.Get<uint64_t>());
  ASSIGN_OR_RETURN(label.model, reader.Get<uint64_t>());
  ASSIGN_OR_RETURN(label.revision, reader.Get<uint64_t>());
  ASSIGN_OR_RETURN(label.created_unix_ms, reader.Get<int64_t>());
  ASSIGN_OR_RETURN(label.expires_unix_ms, reader.Get<int64_t>());
  ASSIGN_OR_RETURN(const std::string_view nonce,
                   reader.GetBytes(kSealNonceBytes));
  std::copy(nonce.begin(), nonce.end(), header.nonce.begin());
  ASSIGN_OR_RETURN(header.key_id,
                   ReadName(reader, "the key's id", kMaxSealKeyIdBytes));
  ASSIGN_OR_RETURN(label.tenant, ReadName(reader, "the tenant", kMaxNameBytes));
  ASSIGN_OR_RETURN(label.session,
                   ReadName(reader, "the session", kMaxNameBytes));
  header.header_bytes = HeaderBytes(label, header.key_id);
  if (header_bytes == header.header_bytes) return header;
  return absl::DataLossError(absl::StrCat("the header has ",
                                          header.header_bytes,
                                          " bytes and says ", header_bytes));
}

// Everything that can be seen without a key.
absl::StatusOr<Header> ParseHeader(std::string_view sealed) {
  RETURN_IF_ERROR(CheckBeginsAsSeal(sealed));
  if (sealed.size() < kMagic.size() + sizeof(uint32_t)) {
    return Damaged(SnapshotFailure::kTruncated, "has ", sealed.size(),
                   " bytes, less than the shortest seal");
  }
  ByteReader reader(sealed);
  RETURN_IF_ERROR(reader.GetBytes(kMagic.size()).status());
  ASSIGN_OR_RETURN(const uint32_t version, reader.Get<uint32_t>());
  if (version != kSealVersion) {
    return Refuse(absl::StatusCode::kFailedPrecondition,
                  SnapshotFailure::kVersion, "version of the seal is ", version,
                  ", this program reads ", kSealVersion);
  }
  absl::StatusOr<Header> header = ReadHeader(reader);
  if (!header.ok()) {
    return Damaged(SnapshotFailure::kTruncated,
                   "seal: ", header.status().message());
  }
  const size_t around = header->header_bytes + SealTagBytes(header->algorithm);
  if (sealed.size() < around ||
      sealed.size() - around != header->payload_bytes) {
    return Damaged(SnapshotFailure::kTruncated, "has ", sealed.size(),
                   " bytes, its seal says ", header->payload_bytes, " and ",
                   around, " around them");
  }
  return header;
}

absl::StatusOr<const SealKey*> FindKey(const SealKeys& keys,
                                       const Header& header) {
  const SealKey* key = keys.Find(header.key_id);
  if (key == nullptr) {
    return Refuse(
        absl::StatusCode::kPermissionDenied, SnapshotFailure::kSeal,
        "is sealed with key \"", absl::CHexEscape(header.key_id),
        keys.ephemeral()
            ? "\"; without --seal-keys a server opens only what it sealed "
              "since it started"
            : "\", which is not in the file of --seal-keys");
  }
  if (key->algorithm == header.algorithm) return key;
  return Damaged(SnapshotFailure::kSeal,
                 "its seal names another algorithm "
                 "than its key has");
}

absl::Status CheckLabel(const SealLabel& label, const SealReader& reader) {
  if (label.tenant != reader.tenant) {
    return Refuse(absl::StatusCode::kPermissionDenied, SnapshotFailure::kSeal,
                  "belongs to another tenant");
  }
  if (label.model != reader.model) {
    return Refuse(absl::StatusCode::kFailedPrecondition,
                  SnapshotFailure::kModelMismatch, "model fingerprint is ",
                  absl::Hex(label.model, absl::kZeroPad16), ", must be ",
                  absl::Hex(reader.model, absl::kZeroPad16));
  }
  if (label.expires_unix_ms != 0 &&
      label.expires_unix_ms <= reader.now_unix_ms) {
    return Refuse(absl::StatusCode::kFailedPrecondition, SnapshotFailure::kSeal,
                  "expired ",
                  (reader.now_unix_ms - label.expires_unix_ms) / 1000,
                  " s ago");
  }
  return absl::OkStatus();
}

}  // namespace

size_t SealedBytes(const SealKeys& keys, const SealLabel& label,
                   size_t snapshot_bytes) {
  const SealKey& key = keys.sealing();
  return HeaderBytes(label, key.id) + snapshot_bytes +
         SealTagBytes(key.algorithm);
}

absl::StatusOr<std::string> SealSnapshot(const SealKeys& keys,
                                         const SealLabel& label,
                                         std::string_view snapshot) {
  const SealKey& key = keys.sealing();
  CHECK(label.tenant.size() <= kMaxNameBytes &&
        label.session.size() <= kMaxNameBytes);
  Header header;
  header.label = label;
  header.key_id = key.id;
  header.algorithm = key.algorithm;
  header.payload_bytes = snapshot.size();
  header.header_bytes = HeaderBytes(label, key.id);
  if (key.algorithm == SealAlgorithm::kAes256Gcm) {
    RETURN_IF_ERROR(FillRandom(header.nonce.data(), header.nonce.size()));
  }
  ByteWriter out;
  out.Reserve(SealedBytes(keys, label, snapshot.size()));
  PutHeader(header, out);
  CHECK(out.data().size() == header.header_bytes);
  out.PutBytes(snapshot);
  std::string sealed = out.Take();
  RETURN_IF_ERROR(SealInPlace(key.algorithm, key.secret, header.nonce,
                              header.header_bytes, sealed));
  return sealed;
}

absl::Status CheckBeginsAsSeal(std::string_view bytes) {
  if (bytes.empty()) {
    return absl::InvalidArgumentError("snapshot: has no bytes");
  }
  if (kMagic.starts_with(bytes.substr(0, kMagic.size()))) {
    return absl::OkStatus();
  }
  if (bytes.starts_with(kSnapshotMagic)) {
    return Refuse(absl::StatusCode::kPermissionDenied, SnapshotFailure::kSeal,
                  "has no seal; only sealed ones are taken, as Export and "
                  "Generate give them out");
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "snapshot: its ", bytes.size(),
      " bytes are no sealed state, they do not start with ", ToAbsl(kMagic)));
}

absl::StatusOr<OpenedSnapshot> OpenSnapshot(const SealKeys& keys,
                                            std::string_view sealed,
                                            const SealReader& reader) {
  ASSIGN_OR_RETURN(Header header, ParseHeader(sealed));
  ASSIGN_OR_RETURN(const SealKey* key, FindKey(keys, header));
  absl::StatusOr<std::string> snapshot = OpenSealed(
      key->algorithm, key->secret, header.nonce, header.header_bytes, sealed);
  if (absl::IsDataLoss(snapshot.status())) {
    return Damaged(SnapshotFailure::kSeal, snapshot.status().message());
  }
  RETURN_IF_ERROR(snapshot.status());
  RETURN_IF_ERROR(CheckLabel(header.label, reader));
  return OpenedSnapshot{std::move(header.label), *std::move(snapshot)};
}

std::optional<SnapshotFailure> SealFailureOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kFailureUrl);
  if (!payload.has_value() || payload->size() != 1) return std::nullopt;
  return static_cast<SnapshotFailure>((*payload)[0] - '0');
}

}  // namespace reprise
