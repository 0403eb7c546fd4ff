#include "engine/state/snapshot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

// docs/snapshot_format.md explains these. Version 1 is all there is so far.
constexpr std::string_view kMagic = "RPRS";
constexpr uint32_t kVersion = 1;
constexpr uint32_t kEncodingF32 = 0;
constexpr int32_t kNoPendingToken = -1;
constexpr size_t kHeaderBytes = 92;
constexpr size_t kChecksumBytes = sizeof(uint32_t);
constexpr size_t kOccurrenceBytes = 16;
constexpr int64_t kMaxWindow = 65536;
constexpr size_t kMaxPendingText = 3;
constexpr int64_t kMaxPosition = int64_t{1} << 62;  // counting on is safe

constexpr absl::string_view kFaultUrl = "reprise/snapshot_fault";

absl::Status WithFault(absl::Status status, SnapshotFault fault) {
  const char code = static_cast<char>('0' + static_cast<int>(fault));
  status.SetPayload(kFaultUrl, absl::Cord(absl::string_view(&code, 1)));
  return status;
}

template <typename... Args>
absl::Status DataLoss(SnapshotFault fault, const Args&... args) {
  return WithFault(absl::DataLossError(absl::StrCat("snapshot: ", args...)),
                   fault);
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

std::string_view InUse(const StateField& field, int64_t position,
                       std::span<const std::byte> slot) {
  const size_t elements = static_cast<size_t>(field.ElementsInUse(position));
  return {reinterpret_cast<const char*>(slot.data() + field.offset),
          elements * sizeof(float)};
}

size_t FieldHeaderBytes(const StateField& field) {
  return sizeof(uint32_t) + field.name.size() + sizeof(uint32_t) +
         field.shape.size() * sizeof(int64_t);
}

// ---- What a session must be, encoded or not ---------------------------------

absl::Status CheckToken(absl::string_view what, int32_t token,
                        int64_t vocab_size) {
  if (token >= 0 && token < vocab_size) return absl::OkStatus();
  return DataLoss(SnapshotFault::kShape, what, " is ", token,
                  ", outside the vocabulary of ", vocab_size);
}

absl::Status CheckOccurrences(const SessionRecord& record, int64_t tokens,
                              int64_t vocab_size) {
  int64_t index = 0;
  int32_t previous = -1;
  for (const TokenOccurrence& seen : record.sampler.occurrences) {
    RETURN_IF_ERROR(CheckToken("occurrence of token", seen.token, vocab_size));
    if (seen.token <= previous) {
      return DataLoss(SnapshotFault::kShape, "occurrences[", index,
                      "] has token ", seen.token, " after ", previous,
                      ", must ascend");
    }
    if (seen.position < 0 || seen.position >= tokens) {
      return DataLoss(SnapshotFault::kShape, "occurrences[", index,
                      "] is at position ", seen.position, " of ", tokens,
                      " tokens");
    }
    previous = seen.token;
    ++index;
  }
  return absl::OkStatus();
}

// All of the record but whether its numbers are finite.
absl::Status CheckRecord(const SessionRecord& record, int64_t vocab_size) {
  if (record.position < 0 || record.position > kMaxPosition) {
    return DataLoss(SnapshotFault::kShape, "position is ", record.position,
                    ", must be 0..", kMaxPosition);
  }
  int64_t tokens = record.position;
  if (record.pending_token.has_value()) {
    RETURN_IF_ERROR(
        CheckToken("pending_token", *record.pending_token, vocab_size));
    ++tokens;
  } else if (record.position != 0) {
    return DataLoss(SnapshotFault::kShape, "no pending_token at position ",
                    record.position);
  }
  if (record.pending_text.size() > kMaxPendingText) {
    return DataLoss(SnapshotFault::kShape, "pending_text has ",
                    record.pending_text.size(), " bytes, at most ",
                    kMaxPendingText);
  }
  const SamplerMemory& sampler = record.sampler;
  if (sampler.window_limit < 0 || sampler.window_limit > kMaxWindow) {
    return DataLoss(SnapshotFault::kShape, "window_limit is ",
                    sampler.window_limit, ", must be 0..", kMaxWindow);
  }
  const auto window = static_cast<int64_t>(sampler.window.size());
  if (window > sampler.window_limit || window > tokens) {
    return DataLoss(SnapshotFault::kShape, "window has ", window,
                    " tokens, at most ", std::min(sampler.window_limit, tokens),
                    " fit");
  }
  for (const int32_t token : sampler.window) {
    RETURN_IF_ERROR(CheckToken("window token", token, vocab_size));
  }
  return CheckOccurrences(record, tokens, vocab_size);
}

// Whether the layout has room for the session's tokens. If not, the session is
// whole, and another configuration of this program can read it.
absl::Status CheckContext(const SessionRecord& record,
                          const StateLayout& layout) {
  const std::optional<int64_t> max = layout.max_context();
  if (!max.has_value() || record.position <= *max) return absl::OkStatus();
  return WithFault(absl::FailedPreconditionError(
                       absl::StrCat("snapshot: position is ", record.position,
                                    ", this engine's max_context is ", *max)),
                   SnapshotFault::kModelMismatch);
}

bool AllFinite(const void* floats, int64_t count) {
  // All ones in the exponent is infinity or NaN. The bytes may lie at any
  // address, hence the copy; blocks let the compiler use vectors.
  constexpr int64_t kBlock = 256;
  constexpr uint32_t kExponent = 0x7f800000;
  const char* bytes = static_cast<const char*>(floats);
  uint32_t bad = 0;
  for (int64_t start = 0; start < count; start += kBlock) {
    std::array<uint32_t, kBlock> block{};
    const int64_t size = std::min(kBlock, count - start);
    std::memcpy(block.data(), bytes + start * sizeof(uint32_t),
                size * sizeof(uint32_t));
    for (const uint32_t bits : block) bad |= (bits & kExponent) == kExponent;
  }
  return bad == 0;
}

// Finite numbers of the record, and of the fields, whose data lie at
// `field_data`.
absl::Status CheckFinite(const SessionRecord& record, const StateLayout& layout,
                         const std::vector<const void*>& field_data) {
  for (const TokenOccurrence& seen : record.sampler.occurrences) {
    if (!std::isfinite(seen.weight)) {
      return DataLoss(SnapshotFault::kNonfinite, "the occurrence of token ",
                      seen.token, " has a weight that is not finite");
    }
  }
  for (size_t i = 0; i < layout.fields().size(); ++i) {
    const StateField& field = layout.fields()[i];
    if (!AllFinite(field_data[i], field.ElementsInUse(record.position))) {
      return DataLoss(SnapshotFault::kNonfinite, "state field ", field.name,
                      " holds a number that is not finite");
    }
  }
  return absl::OkStatus();
}

// ---- Encoding ---------------------------------------------------------------

size_t EncodedBytes(const SessionRecord& record, const StateLayout& layout) {
  size_t bytes = kHeaderBytes + kChecksumBytes;
  bytes += record.sampler.occurrences.size() * kOccurrenceBytes;
  bytes += record.sampler.window.size() * sizeof(int32_t);
  bytes += record.pending_text.size();
  for (const StateField& field : layout.fields()) {
    bytes += FieldHeaderBytes(field);
  }
  return bytes + static_cast<size_t>(layout.PayloadBytesAt(record.position));
}

void PutHeader(const ModelFingerprints& fingerprints,
               const SessionRecord& record, const StateLayout& layout,
               size_t total_bytes, ByteWriter& out) {
  const SamplerMemory& sampler = record.sampler;
  out.PutBytes(kMagic);
  out.Put(kVersion);
  out.Put(static_cast<uint64_t>(total_bytes));
  out.Put(fingerprints.model);
  out.Put(fingerprints.layout);
  out.Put(fingerprints.tokenizer);
  out.Put(record.revision);
  out.Put(record.position);
  out.Put(record.pending_token.value_or(kNoPendingToken));
  out.Put(kEncodingF32);
  out.Put(sampler.draws);
  out.Put(static_cast<uint32_t>(sampler.occurrences.size()));
  out.Put(static_cast<uint32_t>(sampler.window.size()));
  out.Put(static_cast<uint32_t>(sampler.window_limit));
  out.Put(static_cast<uint32_t>(record.pending_text.size()));
  out.Put(static_cast<uint32_t>(layout.fields().size()));
  CHECK(out.data().size() == kHeaderBytes);
}

// ---- Decoding ---------------------------------------------------------------

// Views into a snapshot whose structure was checked.
struct ParsedSnapshot {
  SessionRecord record;
  std::vector<const void*> field_data;  // of each field of the layout
};

struct Counts {
  uint32_t occurrences = 0;
  uint32_t window = 0;
  uint32_t pending_text = 0;
  uint32_t fields = 0;
};

// Length, magic, version, checksum. Returns what lies between the version and
// the checksum, without the length.
absl::StatusOr<std::string_view> CheckEnvelope(std::string_view bytes) {
  if (bytes.size() < kHeaderBytes + kChecksumBytes) {
    return DataLoss(SnapshotFault::kTruncated, "has ", bytes.size(),
                    " bytes, the shortest has ", kHeaderBytes + kChecksumBytes);
  }
  ByteReader reader(bytes);
  ASSIGN_OR_RETURN(const std::string_view magic,
                   reader.GetBytes(kMagic.size()));
  if (magic != kMagic) {
    return DataLoss(SnapshotFault::kChecksum, "does not start with ",
                    ToAbsl(kMagic));
  }
  ASSIGN_OR_RETURN(const uint32_t version, reader.Get<uint32_t>());
  if (version != kVersion) {
    return WithFault(absl::FailedPreconditionError(
                         absl::StrCat("snapshot: version is ", version,
                                      ", this program reads ", kVersion)),
                     SnapshotFault::kVersion);
  }
  ASSIGN_OR_RETURN(const uint64_t total_bytes, reader.Get<uint64_t>());
  if (total_bytes != bytes.size()) {
    return DataLoss(SnapshotFault::kTruncated, "has ", bytes.size(),
                    " bytes and says ", total_bytes);
  }
  const size_t checked_bytes = bytes.size() - kChecksumBytes;
  uint32_t checksum;
  std::memcpy(&checksum, bytes.data() + checked_bytes, sizeof(checksum));
  if (checksum != Crc32c(bytes.substr(0, checked_bytes))) {
    return DataLoss(SnapshotFault::kChecksum, "checksum differs");
  }
  return reader.GetBytes(reader.remaining() - kChecksumBytes);
}

absl::Status CheckFingerprints(ByteReader& reader,
                               const ModelFingerprints& expected) {
  std::vector<std::string> differing;
  for (const auto& [name, value] :
       {std::pair("model", expected.model),
        std::pair("layout", expected.layout),
        std::pair("tokenizer", expected.tokenizer)}) {
    ASSIGN_OR_RETURN(const uint64_t stored, reader.Get<uint64_t>());
    if (stored == value) continue;
    differing.push_back(absl::StrCat(
        name, " fingerprint is ", absl::Hex(stored, absl::kZeroPad16),
        ", must be ", absl::Hex(value, absl::kZeroPad16)));
  }
  if (differing.empty()) return absl::OkStatus();
  return WithFault(absl::FailedPreconditionError(absl::StrCat(
                       "snapshot: ", absl::StrJoin(differing, "; "))),
                   SnapshotFault::kModelMismatch);
}

// The rest of the header, after the fingerprints.
absl::Status ReadHeader(ByteReader& reader, SessionRecord& record,
                        Counts& counts) {
  ASSIGN_OR_RETURN(record.revision, reader.Get<uint64_t>());
  ASSIGN_OR_RETURN(record.position, reader.Get<int64_t>());
  ASSIGN_OR_RETURN(const int32_t pending, reader.Get<int32_t>());
  if (pending != kNoPendingToken) record.pending_token = pending;
  ASSIGN_OR_RETURN(const uint32_t encoding, reader.Get<uint32_t>());
  if (encoding != kEncodingF32) {
    return DataLoss(SnapshotFault::kShape, "encoding is ", encoding,
                    ", must be 0 (f32)");
  }
  ASSIGN_OR_RETURN(record.sampler.draws, reader.Get<uint64_t>());
  ASSIGN_OR_RETURN(counts.occurrences, reader.Get<uint32_t>());
  ASSIGN_OR_RETURN(counts.window, reader.Get<uint32_t>());
  ASSIGN_OR_RETURN(record.sampler.window_limit, reader.Get<uint32_t>());
  ASSIGN_OR_RETURN(counts.pending_text, reader.Get<uint32_t>());
  ASSIGN_OR_RETURN(counts.fields, reader.Get<uint32_t>());
  return absl::OkStatus();
}

// Occurrences, window and text. The bytes are taken from the reader before
// memory for them is, so a count that the snapshot does not back with bytes
// allocates nothing.
absl::Status ReadSamplerAndText(ByteReader& reader, const Counts& counts,
                                SessionRecord& record) {
  ASSIGN_OR_RETURN(
      const std::string_view occurrences,
      reader.GetBytes(uint64_t{counts.occurrences} * kOccurrenceBytes));
  ByteReader seen_reader(occurrences);
  record.sampler.occurrences.resize(counts.occurrences);
  for (TokenOccurrence& seen : record.sampler.occurrences) {
    ASSIGN_OR_RETURN(seen.token, seen_reader.Get<int32_t>());
    ASSIGN_OR_RETURN(seen.weight, seen_reader.Get<float>());
    ASSIGN_OR_RETURN(seen.position, seen_reader.Get<int64_t>());
  }
  ASSIGN_OR_RETURN(const std::string_view window,
                   reader.GetBytes(uint64_t{counts.window} * sizeof(int32_t)));
  ByteReader window_reader(window);
  record.sampler.window.resize(counts.window);
  for (int32_t& token : record.sampler.window) {
    ASSIGN_OR_RETURN(token, window_reader.Get<int32_t>());
  }
  ASSIGN_OR_RETURN(const std::string_view text,
                   reader.GetBytes(counts.pending_text));
  record.pending_text = std::string(text);
  return absl::OkStatus();
}

absl::StatusOr<const void*> ReadField(ByteReader& reader,
                                      const StateField& field,
                                      int64_t position) {
  ASSIGN_OR_RETURN(const std::string_view name, reader.GetSized());
  if (name != field.name) {
    constexpr size_t kShown = 64;
    return DataLoss(SnapshotFault::kShape, "state field is \"",
                    absl::CHexEscape(ToAbsl(name.substr(0, kShown))),
                    "\", must be ", field.name);
  }
  ASSIGN_OR_RETURN(const uint32_t rank, reader.Get<uint32_t>());
  if (rank != field.shape.size()) {
    return DataLoss(SnapshotFault::kShape, "state field ", field.name, " has ",
                    rank, " dimensions, must have ", field.shape.size());
  }
  std::vector<int64_t> shape(rank);
  for (int64_t& dimension : shape) {
    ASSIGN_OR_RETURN(dimension, reader.Get<int64_t>());
  }
  const std::vector<int64_t> expected = field.ShapeInUse(position);
  if (shape != expected) {
    return DataLoss(SnapshotFault::kShape, "state field ", field.name,
                    " has the shape ", ShapeText(shape), ", must be ",
                    ShapeText(expected));
  }
  ASSIGN_OR_RETURN(
      const std::string_view data,
      reader.GetBytes(field.ElementsInUse(position) * sizeof(float)));
  return data.data();
}

absl::StatusOr<ParsedSnapshot> ParseFields(ByteReader reader,
                                           const StateLayout& layout) {
  ParsedSnapshot parsed;
  Counts counts;
  RETURN_IF_ERROR(ReadHeader(reader, parsed.record, counts));
  RETURN_IF_ERROR(CheckContext(parsed.record, layout));
  RETURN_IF_ERROR(ReadSamplerAndText(reader, counts, parsed.record));
  if (counts.fields != layout.fields().size()) {
    return DataLoss(SnapshotFault::kShape, "has ", counts.fields,
                    " state fields, must have ", layout.fields().size());
  }
  for (const StateField& field : layout.fields()) {
    ASSIGN_OR_RETURN(const void* data,
                     ReadField(reader, field, parsed.record.position));
    parsed.field_data.push_back(data);
  }
  if (reader.remaining() != 0) {
    return DataLoss(SnapshotFault::kShape, reader.remaining(),
                    " bytes after the last state field");
  }
  return parsed;
}

}  // namespace

std::optional<SnapshotFault> SnapshotFaultOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kFaultUrl);
  if (!payload.has_value() || payload->size() != 1) return std::nullopt;
  return static_cast<SnapshotFault>((*payload)[0] - '0');
}

absl::Status CheckSession(const SessionRecord& record,
                          const StateLayout& layout, int64_t vocab_size,
                          std::span<const std::byte> slot) {
  CHECK(static_cast<int64_t>(slot.size()) == layout.slot_bytes());
  std::vector<const void*> field_data;
  for (const StateField& field : layout.fields()) {
    field_data.push_back(slot.data() + field.offset);
  }
  absl::Status status = CheckRecord(record, vocab_size);
  if (status.ok()) status = CheckContext(record, layout);
  if (status.ok()) status = CheckFinite(record, layout, field_data);
  const std::optional<SnapshotFault> fault = SnapshotFaultOf(status);
  if (!fault.has_value()) return status;
  return WithFault(absl::InternalError(status.message()), *fault);
}

std::string EncodeSnapshot(const ModelFingerprints& fingerprints,
                           const SessionRecord& record,
                           const StateLayout& layout,
                           std::span<const std::byte> slot) {
  CHECK(static_cast<int64_t>(slot.size()) == layout.slot_bytes());
  CHECK(CheckContext(record, layout).ok());
  const size_t total_bytes = EncodedBytes(record, layout);
  ByteWriter out;
  out.Reserve(total_bytes);
  PutHeader(fingerprints, record, layout, total_bytes, out);
  for (const TokenOccurrence& seen : record.sampler.occurrences) {
    out.Put(seen.token);
    out.Put(seen.weight);
    out.Put(seen.position);
  }
  for (const int32_t token : record.sampler.window) out.Put(token);
  out.PutBytes(record.pending_text);
  for (const StateField& field : layout.fields()) {
    out.PutSized(field.name);
    out.Put(static_cast<uint32_t>(field.shape.size()));
    for (const int64_t dimension : field.ShapeInUse(record.position)) {
      out.Put(dimension);
    }
    out.PutBytes(InUse(field, record.position, slot));
  }
  out.Put(Crc32c(out.data()));
  CHECK(out.data().size() == total_bytes);
  return out.Take();
}

absl::StatusOr<SessionRecord> DecodeSnapshot(
    std::string_view bytes, const ModelFingerprints& fingerprints,
    const StateLayout& layout, int64_t vocab_size, std::span<std::byte> slot) {
  CHECK(static_cast<int64_t>(slot.size()) == layout.slot_bytes());
  ASSIGN_OR_RETURN(const std::string_view body, CheckEnvelope(bytes));
  ByteReader reader(body);
  RETURN_IF_ERROR(CheckFingerprints(reader, fingerprints));
  absl::StatusOr<ParsedSnapshot> parsed = ParseFields(reader, layout);
  if (!parsed.ok()) {
    // A reader that ran out of bytes knows nothing of snapshots.
    if (SnapshotFaultOf(parsed.status()).has_value()) return parsed.status();
    return DataLoss(SnapshotFault::kShape, parsed.status().message());
  }
  RETURN_IF_ERROR(CheckRecord(parsed->record, vocab_size));
  RETURN_IF_ERROR(CheckFinite(parsed->record, layout, parsed->field_data));
  for (size_t i = 0; i < layout.fields().size(); ++i) {
    const StateField& field = layout.fields()[i];
    std::memcpy(slot.data() + field.offset, parsed->field_data[i],
                InUse(field, parsed->record.position, slot).size());
  }
  return std::move(parsed->record);
}

}  // namespace reprise
