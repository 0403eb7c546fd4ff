#include "engine/state/snapshot_parse.h"

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/state/snapshot_check.h"
#include "engine/state/snapshot_format.h"
#include "engine/state/zstd_frame.h"

namespace reprise {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// ---- Around the content -----------------------------------------------------

struct Envelope {
  uint32_t version = 0;
  std::string_view body;  // between the length and the checksum
};

// Length, magic, version, checksum.
absl::StatusOr<Envelope> CheckEnvelope(std::string_view bytes) {
  constexpr size_t kShortest = kCodedHeaderBytes + kChecksumBytes;
  if (bytes.size() < kShortest) {
    return SnapshotDataLoss(SnapshotFault::kTruncated, "has ", bytes.size(),
                            " bytes, the shortest has ", kShortest);
  }
  Envelope envelope;
  ByteReader reader(bytes);
  ASSIGN_OR_RETURN(const std::string_view magic,
                   reader.GetBytes(kSnapshotMagic.size()));
  if (magic != kSnapshotMagic) {
    return SnapshotDataLoss(SnapshotFault::kChecksum, "does not start with ",
                            ToAbsl(kSnapshotMagic));
  }
  ASSIGN_OR_RETURN(envelope.version, reader.Get<uint32_t>());
  if (envelope.version < kPlainVersion || envelope.version > kCodedVersion) {
    return WithFault(
        absl::FailedPreconditionError(absl::StrCat(
            "snapshot: version is ", envelope.version, ", this program reads ",
            kPlainVersion, " to ", kCodedVersion)),
        SnapshotFault::kVersion);
  }
  ASSIGN_OR_RETURN(const uint64_t total_bytes, reader.Get<uint64_t>());
  if (total_bytes != bytes.size()) {
    return SnapshotDataLoss(SnapshotFault::kTruncated, "has ", bytes.size(),
                            " bytes and says ", total_bytes);
  }
  const size_t checked_bytes = bytes.size() - kChecksumBytes;
  uint32_t checksum;
  std::memcpy(&checksum, bytes.data() + checked_bytes, sizeof(checksum));
  if (checksum != Crc32c(bytes.substr(0, checked_bytes))) {
    return SnapshotDataLoss(SnapshotFault::kChecksum, "checksum differs");
  }
  ASSIGN_OR_RETURN(envelope.body,
                   reader.GetBytes(reader.remaining() - kChecksumBytes));
  return envelope;
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

// What version 2 says of its content.
struct Coding {
  SnapshotEncoding encoding;
  uint64_t content_bytes = 0;  // uncompressed
};

absl::StatusOr<StateEncoding> ToElements(uint32_t code) {
  if (code == kCodeF32) return StateEncoding::kF32;
  if (code == kCodeBf16) return StateEncoding::kBf16;
  return SnapshotDataLoss(SnapshotFault::kShape, "encoding is ", code,
                          ", must be ", kCodeF32, " (f32) or ", kCodeBf16,
                          " (bf16)");
}

absl::StatusOr<Coding> ReadCoding(ByteReader& reader) {
  Coding coding;
  ASSIGN_OR_RETURN(const uint32_t elements, reader.Get<uint32_t>());
  ASSIGN_OR_RETURN(coding.encoding.elements, ToElements(elements));
  ASSIGN_OR_RETURN(const uint32_t compression, reader.Get<uint32_t>());
  if (compression != kCodeUncompressed && compression != kCodeZstd) {
    return SnapshotDataLoss(SnapshotFault::kShape, "compression is ",
                            compression, ", must be ", kCodeUncompressed,
                            " (none) or ", kCodeZstd, " (zstd)");
  }
  coding.encoding.zstd = compression == kCodeZstd;
  ASSIGN_OR_RETURN(coding.content_bytes, reader.Get<uint64_t>());
  return coding;
}

// ---- The content ------------------------------------------------------------

struct Counts {
  uint32_t occurrences = 0;
  uint32_t window = 0;
  uint32_t pending_text = 0;
  uint32_t fields = 0;
};

absl::Status ReadContentHeader(ByteReader& reader, uint32_t version,
                               SessionRecord& record, Counts& counts) {
  ASSIGN_OR_RETURN(record.revision, reader.Get<uint64_t>());
  ASSIGN_OR_RETURN(record.position, reader.Get<int64_t>());
  ASSIGN_OR_RETURN(const int32_t pending, reader.Get<int32_t>());
  if (pending != kNoPendingToken) record.pending_token = pending;
  if (version == kPlainVersion) {
    ASSIGN_OR_RETURN(const uint32_t encoding, reader.Get<uint32_t>());
    if (encoding != kCodeF32) {
      return SnapshotDataLoss(SnapshotFault::kShape, "encoding is ", encoding,
                              ", must be 0 (f32)");
    }
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
                                      const StateField& field, int64_t position,
                                      StateEncoding encoding) {
  ASSIGN_OR_RETURN(const std::string_view name, reader.GetSized());
  if (name != field.name) {
    constexpr size_t kShown = 64;
    return SnapshotDataLoss(SnapshotFault::kShape, "state field is \"",
                            absl::CHexEscape(ToAbsl(name.substr(0, kShown))),
                            "\", must be ", field.name);
  }
  ASSIGN_OR_RETURN(const uint32_t rank, reader.Get<uint32_t>());
  if (rank != field.shape.size()) {
    return SnapshotDataLoss(SnapshotFault::kShape, "state field ", field.name,
                            " has ", rank, " dimensions, must have ",
                            field.shape.size());
  }
  std::vector<int64_t> shape(rank);
  for (int64_t& dimension : shape) {
    ASSIGN_OR_RETURN(dimension, reader.Get<int64_t>());
  }
  const std::vector<int64_t> expected = field.ShapeInUse(position);
  if (shape != expected) {
    return SnapshotDataLoss(SnapshotFault::kShape, "state field ", field.name,
                            " has the shape ", ShapeText(shape), ", must be ",
                            ShapeText(expected));
  }
  ASSIGN_OR_RETURN(
      const std::string_view data,
      reader.GetBytes(static_cast<uint64_t>(field.ElementsInUse(position)) *
                      ElementBytes(encoding)));
  return data.data();
}

absl::Status ReadContent(ByteReader reader, uint32_t version,
                         const StateLayout& layout, ParsedSnapshot& parsed) {
  Counts counts;
  RETURN_IF_ERROR(ReadContentHeader(reader, version, parsed.record, counts));
  RETURN_IF_ERROR(CheckContext(parsed.record, layout));
  RETURN_IF_ERROR(ReadSamplerAndText(reader, counts, parsed.record));
  if (counts.fields != layout.fields().size()) {
    return SnapshotDataLoss(SnapshotFault::kShape, "has ", counts.fields,
                            " state fields, must have ",
                            layout.fields().size());
  }
  for (const StateField& field : layout.fields()) {
    ASSIGN_OR_RETURN(const void* data,
                     ReadField(reader, field, parsed.record.position,
                               parsed.encoding.elements));
    parsed.field_data.push_back(data);
  }
  if (reader.remaining() != 0) {
    return SnapshotDataLoss(SnapshotFault::kShape, reader.remaining(),
                            " bytes after the last state field");
  }
  return absl::OkStatus();
}

// How long the content is of a session that this engine can hold and that
// begins like `start`. So a frame that unpacks to more than that, or claims to,
// takes no memory.
absl::StatusOr<uint64_t> ExpectedBytes(std::string_view start,
                                       StateEncoding encoding,
                                       const StateLayout& layout,
                                       int64_t vocab_size) {
  SessionRecord record;
  Counts counts;
  ByteReader reader(start);
  RETURN_IF_ERROR(ReadContentHeader(reader, kCodedVersion, record, counts));
  if (record.position < 0 || record.position > kMaxPosition) {
    return SnapshotDataLoss(SnapshotFault::kShape, "position is ",
                            record.position, ", must be 0..", kMaxPosition);
  }
  RETURN_IF_ERROR(CheckContext(record, layout));
  if (counts.occurrences > vocab_size || counts.window > kMaxWindow ||
      counts.pending_text > kMaxPendingText) {
    return SnapshotDataLoss(SnapshotFault::kShape, "has ", counts.occurrences,
                            " occurrences, ", counts.window,
                            " window tokens and ", counts.pending_text,
                            " bytes of text, at most ", vocab_size, ", ",
                            kMaxWindow, " and ", kMaxPendingText);
  }
  return ContentBytes(layout, record.position, encoding, counts.occurrences,
                      counts.window, counts.pending_text);
}

// Decompresses `frame` to parsed.content, of coding.content_bytes.
absl::Status Decompress(std::string_view frame, const Coding& coding,
                        const StateLayout& layout, int64_t vocab_size,
                        ParsedSnapshot& parsed) {
  ZstdReader zstd(frame);
  std::array<char, kContentHeaderBytes> start{};
  RETURN_IF_ERROR(zstd.Read(start.data(), start.size()));
  ASSIGN_OR_RETURN(const uint64_t expected,
                   ExpectedBytes({start.data(), start.size()},
                                 coding.encoding.elements, layout, vocab_size));
  if (coding.content_bytes != expected) {
    return SnapshotDataLoss(SnapshotFault::kShape, "content has ",
                            coding.content_bytes,
                            " bytes, that of such a session ", expected);
  }
  parsed.content = std::make_unique_for_overwrite<char[]>(expected);
  std::memcpy(parsed.content.get(), start.data(), start.size());
  RETURN_IF_ERROR(
      zstd.Read(parsed.content.get() + start.size(), expected - start.size()));
  return zstd.End();
}

absl::Status ReadBody(ByteReader reader, uint32_t version,
                      const StateLayout& layout, int64_t vocab_size,
                      ParsedSnapshot& parsed) {
  if (version == kPlainVersion) {
    return ReadContent(reader, version, layout, parsed);
  }
  ASSIGN_OR_RETURN(const Coding coding, ReadCoding(reader));
  parsed.encoding = coding.encoding;
  ASSIGN_OR_RETURN(std::string_view content,
                   reader.GetBytes(reader.remaining()));
  if (coding.encoding.zstd) {
    RETURN_IF_ERROR(Decompress(content, coding, layout, vocab_size, parsed));
    content = {parsed.content.get(), coding.content_bytes};
  } else if (content.size() != coding.content_bytes) {
    return SnapshotDataLoss(SnapshotFault::kShape, "content has ",
                            content.size(), " bytes and says ",
                            coding.content_bytes);
  }
  return ReadContent(ByteReader(content), version, layout, parsed);
}

}  // namespace

absl::StatusOr<ParsedSnapshot> ParseSnapshot(
    std::string_view bytes, const ModelFingerprints& fingerprints,
    const StateLayout& layout, int64_t vocab_size) {
  ASSIGN_OR_RETURN(const Envelope envelope, CheckEnvelope(bytes));
  ByteReader reader(envelope.body);
  RETURN_IF_ERROR(CheckFingerprints(reader, fingerprints));
  ParsedSnapshot parsed;
  const absl::Status read =
      ReadBody(reader, envelope.version, layout, vocab_size, parsed);
  // A reader that ran out of bytes knows nothing of snapshots.
  if (!read.ok() && !SnapshotFaultOf(read).has_value()) {
    return SnapshotDataLoss(SnapshotFault::kShape, read.message());
  }
  RETURN_IF_ERROR(read);
  RETURN_IF_ERROR(CheckRecord(parsed.record, vocab_size));
  return parsed;
}

}  // namespace reprise
