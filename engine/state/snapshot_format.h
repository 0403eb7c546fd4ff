// The constants of docs/snapshot_format.md, for the files that write and read
// snapshots.
#ifndef ENGINE_STATE_SNAPSHOT_FORMAT_H_
#define ENGINE_STATE_SNAPSHOT_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/state/snapshot.h"

namespace reprise {

inline constexpr std::string_view kSnapshotMagic = "RPRS";
// Version 1 has f32 elements and is not compressed.
inline constexpr uint32_t kPlainVersion = 1;
inline constexpr uint32_t kCodedVersion = 2;

inline constexpr uint32_t kCodeF32 = 0;
inline constexpr uint32_t kCodeBf16 = 1;
inline constexpr uint32_t kCodeUncompressed = 0;
inline constexpr uint32_t kCodeZstd = 1;

inline constexpr int32_t kNoPendingToken = -1;
// Magic, version, length, fingerprints; with what version 2 adds to them.
inline constexpr size_t kPlainHeaderBytes = 40;
inline constexpr size_t kCodedHeaderBytes = kPlainHeaderBytes + 16;
inline constexpr size_t kChecksumBytes = sizeof(uint32_t);
// The beginning of the content; version 1 has the encoding in it.
inline constexpr size_t kContentHeaderBytes = 48;
inline constexpr size_t kOccurrenceBytes = 16;
inline constexpr int64_t kMaxWindow = 65536;
inline constexpr size_t kMaxPendingText = 3;

inline size_t FieldHeaderBytes(const StateField& field) {
  return sizeof(uint32_t) + field.name.size() + sizeof(uint32_t) +
         field.shape.size() * sizeof(int64_t);
}

// Bytes of a session's content in version 2, uncompressed, with so many
// occurrences, window tokens and bytes of text.
inline uint64_t ContentBytes(const StateLayout& layout, int64_t position,
                             StateEncoding encoding, uint64_t occurrences,
                             uint64_t window, uint64_t text) {
  uint64_t bytes = kContentHeaderBytes + occurrences * kOccurrenceBytes +
                   window * sizeof(int32_t) + text;
  for (const StateField& field : layout.fields()) {
    bytes += FieldHeaderBytes(field) +
             field.ElementsInUse(position) * ElementBytes(encoding);
  }
  return bytes;
}

}  // namespace reprise

#endif  // ENGINE_STATE_SNAPSHOT_FORMAT_H_
