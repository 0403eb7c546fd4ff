#include "engine/model/packed_table.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

constexpr std::string_view kMagic = "RPRSPACK";
constexpr uint32_t kVersion = 1;
constexpr size_t kZeros = 28;
constexpr size_t kCheckedHeaderBytes = kPackedHeaderBytes - sizeof(uint32_t);

absl::StatusOr<PackedBlock> ReadBlock(ByteReader& reader, uint64_t end) {
  PackedBlock block;
  ASSIGN_OR_RETURN(const std::string_view layout, reader.GetSized());
  block.layout = std::string(layout);
  ASSIGN_OR_RETURN(block.offset, reader.Get<uint64_t>());
  ASSIGN_OR_RETURN(block.weight_bytes, reader.Get<uint64_t>());
  ASSIGN_OR_RETURN(block.other_bytes, reader.Get<uint64_t>());
  const bool inside =
      block.offset >= kPackedHeaderBytes && block.offset <= end &&
      block.weight_bytes <= end - block.offset &&
      block.other_bytes <= end - block.offset - block.weight_bytes;
  if (!inside || block.offset % kPackedAlignment != 0) {
    return absl::DataLossError(absl::StrCat(
        "a block of ", block.weight_bytes, " + ", block.other_bytes,
        " bytes at ", block.offset, " does not fit before the table at ", end));
  }
  const uint64_t pieces =
      (block.weight_bytes + kPackedPieceBytes - 1) / kPackedPieceBytes;
  ASSIGN_OR_RETURN(const std::string_view checksums,
                   reader.GetBytes(pieces * sizeof(uint32_t)));
  block.piece_checksums.resize(pieces);
  if (pieces > 0) {
    std::memcpy(block.piece_checksums.data(), checksums.data(),
                checksums.size());
  }
  ASSIGN_OR_RETURN(block.other_checksum, reader.Get<uint32_t>());
  return block;
}

}  // namespace

std::string EncodePackedHeader(const PackedHeader& header) {
  ByteWriter writer;
  writer.PutBytes(kMagic);
  writer.Put(kVersion);
  writer.Put(header.table_checksum);
  writer.Put(header.table_offset);
  writer.Put(header.table_bytes);
  writer.PutBytes(std::string(kZeros, '\0'));
  writer.Put(Crc32c(writer.data()));
  return writer.Take();
}

absl::StatusOr<PackedHeader> DecodePackedHeader(std::string_view bytes,
                                                uint64_t file_bytes) {
  if (bytes.size() < kPackedHeaderBytes) {
    return absl::DataLossError(absl::StrCat("truncated: ", bytes.size(),
                                            " bytes are less than a header"));
  }
  ByteReader reader(bytes.substr(0, kPackedHeaderBytes));
  ASSIGN_OR_RETURN(const std::string_view magic,
                   reader.GetBytes(kMagic.size()));
  if (magic != kMagic) {
    return absl::DataLossError("it does not begin as packed weights do");
  }
  ASSIGN_OR_RETURN(const uint32_t version, reader.Get<uint32_t>());
  if (version != kVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "it has version ", version, ", this program reads ", kVersion));
  }
  PackedHeader header;
  ASSIGN_OR_RETURN(header.table_checksum, reader.Get<uint32_t>());
  ASSIGN_OR_RETURN(header.table_offset, reader.Get<uint64_t>());
  ASSIGN_OR_RETURN(header.table_bytes, reader.Get<uint64_t>());
  ASSIGN_OR_RETURN(const std::string_view zeros, reader.GetBytes(kZeros));
  ASSIGN_OR_RETURN(const uint32_t checksum, reader.Get<uint32_t>());
  const bool empty =
      std::all_of(zeros.begin(), zeros.end(), [](char c) { return c == 0; });
  if (!empty || checksum != Crc32c(bytes.substr(0, kCheckedHeaderBytes))) {
    return absl::DataLossError("the checksum of the header is wrong");
  }
  if (header.table_offset < kPackedHeaderBytes ||
      header.table_offset > file_bytes ||
      header.table_bytes != file_bytes - header.table_offset) {
    return absl::DataLossError(absl::StrCat(
        "a table of ", header.table_bytes, " bytes at ", header.table_offset,
        " does not end a file of ", file_bytes));
  }
  return header;
}

std::string EncodePackedTable(const PackedTable& table) {
  ByteWriter writer;
  writer.Put(static_cast<uint32_t>(table.identity.size()));
  for (const auto& [name, value] : table.identity) {
    writer.PutSized(name);
    writer.PutSized(value);
  }
  writer.Put(static_cast<uint32_t>(table.digests.size()));
  for (const auto& [name, digest] : table.digests) {
    writer.PutSized(name);
    writer.PutBytes(
        {reinterpret_cast<const char*>(digest.data()), digest.size()});
  }
  writer.Put(static_cast<uint32_t>(table.blocks.size()));
  for (const auto& [key, block] : table.blocks) {
    writer.PutSized(key);
    writer.PutSized(block.layout);
    writer.Put(block.offset);
    writer.Put(block.weight_bytes);
    writer.Put(block.other_bytes);
    for (const uint32_t checksum : block.piece_checksums) writer.Put(checksum);
    writer.Put(block.other_checksum);
  }
  return writer.Take();
}

absl::StatusOr<PackedTable> DecodePackedTable(std::string_view bytes,
                                              const PackedHeader& header) {
  if (bytes.size() != header.table_bytes ||
      Crc32c(bytes) != header.table_checksum) {
    return absl::DataLossError("the checksum of the table is wrong");
  }
  PackedTable table;
  ByteReader reader(bytes);
  ASSIGN_OR_RETURN(const uint32_t fields, reader.Get<uint32_t>());
  for (uint32_t i = 0; i < fields; ++i) {
    ASSIGN_OR_RETURN(const std::string_view name, reader.GetSized());
    ASSIGN_OR_RETURN(const std::string_view value, reader.GetSized());
    table.identity.emplace_back(name, value);
  }
  ASSIGN_OR_RETURN(const uint32_t tensors, reader.Get<uint32_t>());
  for (uint32_t i = 0; i < tensors; ++i) {
    ASSIGN_OR_RETURN(const std::string_view name, reader.GetSized());
    Fingerprint::Digest digest;
    ASSIGN_OR_RETURN(const std::string_view from,
                     reader.GetBytes(digest.size()));
    std::memcpy(digest.data(), from.data(), digest.size());
    if (!table.digests.emplace(name, digest).second) {
      return absl::DataLossError("a tensor is listed twice");
    }
  }
  ASSIGN_OR_RETURN(const uint32_t blocks, reader.Get<uint32_t>());
  for (uint32_t i = 0; i < blocks; ++i) {
    ASSIGN_OR_RETURN(const std::string_view key, reader.GetSized());
    ASSIGN_OR_RETURN(PackedBlock block, ReadBlock(reader, header.table_offset));
    if (!table.blocks.emplace(key, std::move(block)).second) {
      return absl::DataLossError("a block is listed twice");
    }
  }
  if (reader.remaining() != 0) {
    return absl::DataLossError(
        absl::StrCat(reader.remaining(), " bytes after the table"));
  }
  return table;
}

}  // namespace reprise
