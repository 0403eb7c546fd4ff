#include "engine/state/snapshot.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/state/snapshot_check.h"
#include "engine/state/snapshot_format.h"
#include "engine/state/snapshot_parse.h"
#include "engine/state/zstd_frame.h"

namespace reprise {
namespace {

// A session whose tensors lie at `fields`, one for each of the layout.
struct Session {
  const SessionRecord& record;
  const StateLayout& layout;
  std::span<const void* const> fields;
  StateEncoding elements;  // as they lie there
};

void PutHeader(uint32_t version, const ModelFingerprints& fingerprints,
               uint64_t total_bytes, ByteWriter& out) {
  out.PutBytes(kSnapshotMagic);
  out.Put(version);
  out.Put(total_bytes);
  out.Put(fingerprints.model);
  out.Put(fingerprints.layout);
  out.Put(fingerprints.tokenizer);
  CHECK(out.data().size() == kPlainHeaderBytes);
}

void PutElements(const void* elements, StateEncoding from, int64_t count,
                 StateEncoding to, ByteWriter& out) {
  if (from == to) {
    out.PutBytes({static_cast<const char*>(elements),
                  static_cast<size_t>(count) * ElementBytes(to)});
    return;
  }
  constexpr int64_t kBlock = 4096;  // at most so many f32 on the stack
  std::array<char, kBlock * sizeof(float)> block;
  for (int64_t start = 0; start < count; start += kBlock) {
    const int64_t size = std::min(kBlock, count - start);
    ConvertElements(static_cast<const char*>(elements) +
                        static_cast<size_t>(start) * ElementBytes(from),
                    from, size, to, block.data());
    out.PutBytes({block.data(), static_cast<size_t>(size) * ElementBytes(to)});
  }
}

void PutContent(const Session& session, uint32_t version, StateEncoding to,
                ByteWriter& out) {
  const SessionRecord& record = session.record;
  const SamplerMemory& sampler = record.sampler;
  out.Put(record.revision);
  out.Put(record.position);
  out.Put(record.pending_token.value_or(kNoPendingToken));
  if (version == kPlainVersion) out.Put(kCodeF32);
  out.Put(sampler.draws);
  out.Put(static_cast<uint32_t>(sampler.occurrences.size()));
  out.Put(static_cast<uint32_t>(sampler.window.size()));
  out.Put(static_cast<uint32_t>(sampler.window_limit));
  out.Put(static_cast<uint32_t>(record.pending_text.size()));
  out.Put(static_cast<uint32_t>(session.layout.fields().size()));
  for (const TokenOccurrence& seen : sampler.occurrences) {
    out.Put(seen.token);
    out.Put(seen.weight);
    out.Put(seen.position);
  }
  // Oldest first, wherever the ring begins: equal sessions, equal bytes.
  for (size_t i = 0; i < sampler.window.size(); ++i) {
    out.Put(
        sampler.window[(sampler.window_oldest + i) % sampler.window.size()]);
  }
  out.PutBytes(record.pending_text);
  const std::vector<StateField>& fields = session.layout.fields();
  for (size_t i = 0; i < fields.size(); ++i) {
    out.PutSized(fields[i].name);
    out.Put(static_cast<uint32_t>(fields[i].shape.size()));
    for (const int64_t dimension : fields[i].ShapeInUse(record.position)) {
      out.Put(dimension);
    }
    PutElements(session.fields[i], session.elements,
                fields[i].ElementsInUse(record.position), to, out);
  }
}

std::string Finished(uint64_t total_bytes, ByteWriter out) {
  out.Put(Crc32c(out.data()));
  CHECK(out.data().size() == total_bytes);
  return out.Take();
}

std::string Encode(const ModelFingerprints& fingerprints,
                   const Session& session, const SnapshotEncoding& encoding) {
  const SessionRecord& record = session.record;
  const uint64_t content_bytes =
      ContentBytes(session.layout, record.position, encoding.elements,
                   record.sampler.occurrences.size(),
                   record.sampler.window.size(), record.pending_text.size());
  ByteWriter out;
  if (encoding == SnapshotEncoding()) {
    const uint64_t total_bytes =
        kPlainHeaderBytes + sizeof(kCodeF32) + content_bytes + kChecksumBytes;
    out.Reserve(total_bytes);
    PutHeader(kPlainVersion, fingerprints, total_bytes, out);
    PutContent(session, kPlainVersion, encoding.elements, out);
    return Finished(total_bytes, std::move(out));
  }
  std::string frame;
  if (encoding.zstd) {
    ByteWriter content;
    content.Reserve(content_bytes);
    PutContent(session, kCodedVersion, encoding.elements, content);
    frame = ZstdCompress(content.data());
  }
  const uint64_t total_bytes = kCodedHeaderBytes + kChecksumBytes +
                               (encoding.zstd ? frame.size() : content_bytes);
  out.Reserve(total_bytes);
  PutHeader(kCodedVersion, fingerprints, total_bytes, out);
  out.Put(encoding.exact() ? kCodeF32 : kCodeBf16);
  out.Put(encoding.zstd ? kCodeZstd : kCodeUncompressed);
  out.Put(content_bytes);
  if (encoding.zstd) {
    out.PutBytes(frame);
  } else {
    PutContent(session, kCodedVersion, encoding.elements, out);
  }
  return Finished(total_bytes, std::move(out));
}

// Checked and copied in pieces that the second reading finds in a cache.
absl::Status ReadElements(const StateField& field, const char* elements,
                          StateEncoding from, int64_t count, std::byte* out) {
  constexpr int64_t kPiece = 4096;
  for (int64_t start = 0; start < count; start += kPiece) {
    const int64_t size = std::min(kPiece, count - start);
    const char* piece =
        elements + static_cast<size_t>(start) * ElementBytes(from);
    RETURN_IF_ERROR(CheckFinite(field, piece, from, size));
    ConvertElements(piece, from, size, StateEncoding::kF32,
                    out + static_cast<size_t>(start) * sizeof(float));
  }
  return absl::OkStatus();
}

}  // namespace

std::string EncodeSnapshot(const ModelFingerprints& fingerprints,
                           const SessionRecord& record,
                           const StateLayout& layout,
                           std::span<const std::byte> slot,
                           const SnapshotEncoding& encoding) {
  CHECK(static_cast<int64_t>(slot.size()) == layout.slot_bytes());
  CHECK(CheckContext(record, layout).ok());
  std::vector<const void*> fields;
  for (const StateField& field : layout.fields()) {
    fields.push_back(slot.data() + field.offset);
  }
  return Encode(fingerprints, {record, layout, fields, StateEncoding::kF32},
                encoding);
}

absl::StatusOr<SessionRecord> DecodeSnapshot(
    std::string_view bytes, const ModelFingerprints& fingerprints,
    const StateLayout& layout, int64_t vocab_size, std::span<std::byte> slot,
    SnapshotEncoding* encoding) {
  CHECK(static_cast<int64_t>(slot.size()) == layout.slot_bytes());
  ASSIGN_OR_RETURN(ParsedSnapshot parsed,
                   ParseSnapshot(bytes, fingerprints, layout, vocab_size));
  for (size_t i = 0; i < layout.fields().size(); ++i) {
    const StateField& field = layout.fields()[i];
    RETURN_IF_ERROR(ReadElements(
        field, static_cast<const char*>(parsed.field_data[i]),
        parsed.encoding.elements, field.ElementsInUse(parsed.record.position),
        slot.data() + field.offset));
  }
  if (encoding != nullptr) *encoding = parsed.encoding;
  return std::move(parsed.record);
}

absl::StatusOr<RecodedSnapshot> RecodeSnapshot(
    std::string_view bytes, const ModelFingerprints& fingerprints,
    const StateLayout& layout, int64_t vocab_size, const SnapshotEncoding& to) {
  ASSIGN_OR_RETURN(ParsedSnapshot parsed,
                   ParseSnapshot(bytes, fingerprints, layout, vocab_size));
  for (size_t i = 0; i < layout.fields().size(); ++i) {
    const StateField& field = layout.fields()[i];
    RETURN_IF_ERROR(CheckFinite(field, parsed.field_data[i],
                                parsed.encoding.elements,
                                field.ElementsInUse(parsed.record.position)));
  }
  RecodedSnapshot recoded;
  recoded.bytes = Encode(
      fingerprints,
      {parsed.record, layout, parsed.field_data, parsed.encoding.elements}, to);
  recoded.record = std::move(parsed.record);
  recoded.from = parsed.encoding;
  recoded.to = to;
  return recoded;
}

}  // namespace reprise
