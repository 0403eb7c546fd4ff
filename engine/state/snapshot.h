// A session as bytes: its state and its bookkeeping. docs/snapshot_format.md
// is the format; equal sessions encode to equal bytes, so there is no clock and
// no name in it.
#ifndef ENGINE_STATE_SNAPSHOT_H_
#define ENGINE_STATE_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/state/state_elements.h"
#include "engine/state/state_layout.h"

namespace reprise {

// How a snapshot is written. The default keeps every bit.
struct SnapshotEncoding {
  // Of the state's tensors; all else is exact always.
  StateEncoding elements = StateEncoding::kF32;
  bool zstd = false;

  bool exact() const { return elements == StateEncoding::kF32; }
  friend bool operator==(const SnapshotEncoding&,
                         const SnapshotEncoding&) = default;
};

// What a state only fits to. A snapshot of another model, layout or tokenizer
// is refused.
struct ModelFingerprints {
  uint64_t model = 0;   // config, weights and the type they are packed in
  uint64_t layout = 0;  // StateLayout::fingerprint
  uint64_t tokenizer = 0;
};

// How often a token occurred in the session, for the penalties of the sampler.
struct TokenOccurrence {
  int32_t token = 0;
  float weight = 0;      // decayed count, as of `position`
  int64_t position = 0;  // of the latest occurrence
};

// What the sampler remembers of a session. See engine/sampler.h.
struct SamplerMemory {
  uint64_t draws = 0;                        // random numbers used so far
  std::vector<TokenOccurrence> occurrences;  // ascending by token
  // The latest tokens, window_limit at most: a ring once it holds so many. The
  // oldest is at window_oldest, the others follow it.
  std::vector<int32_t> window;
  size_t window_oldest = 0;  // 0 while the window is not full
  int64_t window_limit = 0;  // 0..65536
};

// Most tokens that a state can have consumed. No session comes so far, at a
// million tokens a second in 9 years; a snapshot that says so was made up.
// Turns that would go beyond it are not begun.
inline constexpr int64_t kMaxPosition = int64_t{1} << 48;

// A session without its state tensors.
struct SessionRecord {
  uint64_t revision = 0;  // committed turns
  int64_t position = 0;   // tokens the state has consumed, 0..kMaxPosition
  std::optional<int32_t> pending_token;  // none only in an empty session
  SamplerMemory sampler;
  std::string pending_text;  // bytes of a character not yet whole, 0..3
};

// Why a snapshot was refused, for metrics.
enum class SnapshotFault {
  kTruncated,      // shorter or longer than it says
  kChecksum,       // damaged, or not a snapshot at all
  kVersion,        // of a format that this program does not read
  kModelMismatch,  // of another model, layout or tokenizer, or too long
  kShape,          // whole, but what it says cannot be
  kNonfinite,      // holds a NaN or an infinity
};

// The reason of an error of DecodeSnapshot or CheckSession; none for others.
std::optional<SnapshotFault> SnapshotFaultOf(const absl::Status& status);

// OK if the session is one that DecodeSnapshot accepts, so call it before
// keeping what EncodeSnapshot returns: a state that has overflowed must fail
// the turn, not the next one. Internal, naming the field, otherwise.
absl::Status CheckSession(const SessionRecord& record,
                          const StateLayout& layout, int64_t vocab_size,
                          std::span<const std::byte> slot);

// The whole session as bytes. `slot` is laid out as `layout`.
std::string EncodeSnapshot(const ModelFingerprints& fingerprints,
                           const SessionRecord& record,
                           const StateLayout& layout,
                           std::span<const std::byte> slot,
                           const SnapshotEncoding& encoding = {});

// Validates everything, writes the state to `slot` and returns the record. The
// gaps between fields are not written: give it a zeroed slot. Checked in this
// order: length, magic, version, checksum (DataLoss; an unknown version is
// FailedPrecondition), fingerprints (FailedPrecondition, naming which ones
// differ), room for its tokens (FailedPrecondition), fields, finite numbers
// (DataLoss). On an error `slot` is untouched, but for the last one: then it
// holds a part of the state. How it was written goes to `encoding`, if that is
// not null.
absl::StatusOr<SessionRecord> DecodeSnapshot(
    std::string_view bytes, const ModelFingerprints& fingerprints,
    const StateLayout& layout, int64_t vocab_size, std::span<std::byte> slot,
    SnapshotEncoding* encoding = nullptr);

struct RecodedSnapshot {
  std::string bytes;
  SessionRecord record;
  SnapshotEncoding from;  // how it was written before
  SnapshotEncoding to;    // how `bytes` are
};
// The same session written in another way, or in the same; needs no slot.
// Validates everything and returns the errors of DecodeSnapshot.
absl::StatusOr<RecodedSnapshot> RecodeSnapshot(
    std::string_view bytes, const ModelFingerprints& fingerprints,
    const StateLayout& layout, int64_t vocab_size, const SnapshotEncoding& to);

}  // namespace reprise

#endif  // ENGINE_STATE_SNAPSHOT_H_
