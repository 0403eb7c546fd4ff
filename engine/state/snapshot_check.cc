#include "engine/state/snapshot_check.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/cord.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/state/snapshot_format.h"

namespace reprise {
namespace {

constexpr absl::string_view kFaultUrl = "reprise/snapshot_fault";

absl::Status CheckToken(absl::string_view what, int32_t token,
                        int64_t vocab_size) {
  if (token >= 0 && token < vocab_size) return absl::OkStatus();
  return SnapshotDataLoss(SnapshotFault::kShape, what, " is ", token,
                          ", outside the vocabulary of ", vocab_size);
}

absl::Status CheckOccurrences(const SessionRecord& record, int64_t tokens,
                              int64_t vocab_size) {
  int64_t index = 0;
  int32_t previous = -1;
  for (const TokenOccurrence& seen : record.sampler.occurrences) {
    RETURN_IF_ERROR(CheckToken("occurrence of token", seen.token, vocab_size));
    if (seen.token <= previous) {
      return SnapshotDataLoss(SnapshotFault::kShape, "occurrences[", index,
                              "] has token ", seen.token, " after ", previous,
                              ", must ascend");
    }
    if (seen.position < 0 || seen.position >= tokens) {
      return SnapshotDataLoss(SnapshotFault::kShape, "occurrences[", index,
                              "] is at position ", seen.position, " of ",
                              tokens, " tokens");
    }
    if (!std::isfinite(seen.weight)) {
      return SnapshotDataLoss(SnapshotFault::kNonfinite,
                              "the occurrence of token ", seen.token,
                              " has a weight that is not finite");
    }
    previous = seen.token;
    ++index;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WithFault(absl::Status status, SnapshotFault fault) {
  const char code = static_cast<char>('0' + static_cast<int>(fault));
  status.SetPayload(kFaultUrl, absl::Cord(absl::string_view(&code, 1)));
  return status;
}

absl::Status CheckRecord(const SessionRecord& record, int64_t vocab_size) {
  if (record.position < 0 || record.position > kMaxPosition) {
    return SnapshotDataLoss(SnapshotFault::kShape, "position is ",
                            record.position, ", must be 0..", kMaxPosition);
  }
  int64_t tokens = record.position;
  if (record.pending_token.has_value()) {
    RETURN_IF_ERROR(
        CheckToken("pending_token", *record.pending_token, vocab_size));
    ++tokens;
  } else if (record.position != 0) {
    return SnapshotDataLoss(SnapshotFault::kShape,
                            "no pending_token at position ", record.position);
  }
  if (record.pending_text.size() > kMaxPendingText) {
    return SnapshotDataLoss(SnapshotFault::kShape, "pending_text has ",
                            record.pending_text.size(), " bytes, at most ",
                            kMaxPendingText);
  }
  const SamplerMemory& sampler = record.sampler;
  if (sampler.window_limit < 0 || sampler.window_limit > kMaxWindow) {
    return SnapshotDataLoss(SnapshotFault::kShape, "window_limit is ",
                            sampler.window_limit, ", must be 0..", kMaxWindow);
  }
  const auto window = static_cast<int64_t>(sampler.window.size());
  if (window > sampler.window_limit || window > tokens) {
    return SnapshotDataLoss(SnapshotFault::kShape, "window has ", window,
                            " tokens, at most ",
                            std::min(sampler.window_limit, tokens), " fit");
  }
  for (const int32_t token : sampler.window) {
    RETURN_IF_ERROR(CheckToken("window token", token, vocab_size));
  }
  return CheckOccurrences(record, tokens, vocab_size);
}

absl::Status CheckContext(const SessionRecord& record,
                          const StateLayout& layout) {
  const std::optional<int64_t> max = layout.max_context();
  if (!max.has_value() || record.position <= *max) return absl::OkStatus();
  return WithFault(absl::FailedPreconditionError(
                       absl::StrCat("snapshot: position is ", record.position,
                                    ", this engine's max_context is ", *max)),
                   SnapshotFault::kModelMismatch);
}

absl::Status CheckFinite(const StateField& field, const void* elements,
                         StateEncoding encoding, int64_t count) {
  if (AllFinite(elements, encoding, count)) return absl::OkStatus();
  return SnapshotDataLoss(SnapshotFault::kNonfinite, "state field ", field.name,
                          " holds a number that is not finite");
}

std::optional<SnapshotFault> SnapshotFaultOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kFaultUrl);
  if (!payload.has_value() || payload->size() != 1) return std::nullopt;
  return static_cast<SnapshotFault>((*payload)[0] - '0');
}

absl::Status CheckSession(const SessionRecord& record,
                          const StateLayout& layout, int64_t vocab_size,
                          std::span<const std::byte> slot) {
  CHECK(static_cast<int64_t>(slot.size()) == layout.slot_bytes());
  absl::Status status = CheckRecord(record, vocab_size);
  if (status.ok()) status = CheckContext(record, layout);
  for (const StateField& field : layout.fields()) {
    if (!status.ok()) break;
    status = CheckFinite(field, slot.data() + field.offset, StateEncoding::kF32,
                         field.ElementsInUse(record.position));
  }
  const std::optional<SnapshotFault> fault = SnapshotFaultOf(status);
  if (!fault.has_value()) return status;
  return WithFault(absl::InternalError(status.message()), *fault);
}

}  // namespace reprise
