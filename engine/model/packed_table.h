// What a file of packed weights says of itself. Little-endian:
//
//   header, 64 bytes | blocks | table
//
//   header  8 bytes "RPRSPACK" | u32 version | u32 CRC of the table
//           u64 where the table begins | u64 its length | 28 zeros
//           u32 CRC of the header before it
//   block   packed weights | bias and scales
//           begins at a multiple of 64
//   table   u32 n | n times: sized name, sized value        (the identity)
//           u32 n | n times: sized tensor, 32 bytes SHA-256 (the sources)
//           u32 n | n times: sized key, sized layout, u64 where the block
//                   begins, u64 bytes of weights, u64 bytes of the others,
//                   a CRC for each MiB of the weights, a CRC of the others
//
// CRC is CRC-32C; a sized string is a u32 and as many bytes.
#ifndef ENGINE_MODEL_PACKED_TABLE_H_
#define ENGINE_MODEL_PACKED_TABLE_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/fingerprint.h"

namespace reprise {

inline constexpr uint64_t kPackedHeaderBytes = 64;
inline constexpr uint64_t kPackedAlignment = 64;
// The weights of a block are checked, and read, in pieces of this size.
inline constexpr uint64_t kPackedPieceBytes = uint64_t{1} << 20;

struct PackedBlock {
  std::string layout;
  uint64_t offset = 0;  // from the start of the file
  uint64_t weight_bytes = 0;
  uint64_t other_bytes = 0;
  std::vector<uint32_t> piece_checksums;
  uint32_t other_checksum = 0;
};

// Names and values, which differ if the weights could: of the program, the CPU
// and the files that were packed.
using PackedIdentity = std::vector<std::pair<std::string, std::string>>;

struct PackedTable {
  PackedIdentity identity;
  Fingerprint::Digests digests;  // of tensors
  std::map<std::string, PackedBlock, std::less<>> blocks;
};

struct PackedHeader {
  uint64_t table_offset = 0;
  uint64_t table_bytes = 0;
  uint32_t table_checksum = 0;
};

std::string EncodePackedHeader(const PackedHeader& header);
// DataLoss if it is damaged, FailedPrecondition if it is another version's;
// `bytes` are the first kPackedHeaderBytes of a file of `file_bytes`, or fewer
// of a shorter one.
absl::StatusOr<PackedHeader> DecodePackedHeader(std::string_view bytes,
                                                uint64_t file_bytes);

std::string EncodePackedTable(const PackedTable& table);
// DataLoss for whatever EncodePackedTable does not write, and for blocks that
// do not lie before the table. Memory is bounded by a small multiple of the
// size of `bytes`.
absl::StatusOr<PackedTable> DecodePackedTable(std::string_view bytes,
                                              const PackedHeader& header);

}  // namespace reprise

#endif  // ENGINE_MODEL_PACKED_TABLE_H_
