// A snapshot taken apart: everything about it checked, nothing written yet. For
// snapshot.cc.
#ifndef ENGINE_STATE_SNAPSHOT_PARSE_H_
#define ENGINE_STATE_SNAPSHOT_PARSE_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/state/snapshot.h"

namespace reprise {

struct ParsedSnapshot {
  SessionRecord record;
  SnapshotEncoding encoding;
  // Elements of each field of the layout, in `content` or in the bytes that
  // were parsed.
  std::vector<const void*> field_data;
  std::unique_ptr<char[]> content;  // what was decompressed
};

// The errors of DecodeSnapshot, but for those of numbers of the state that are
// not finite: those are for who reads them. `bytes` must outlive the result.
absl::StatusOr<ParsedSnapshot> ParseSnapshot(
    std::string_view bytes, const ModelFingerprints& fingerprints,
    const StateLayout& layout, int64_t vocab_size);

}  // namespace reprise

#endif  // ENGINE_STATE_SNAPSHOT_PARSE_H_
