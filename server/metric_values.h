// What metrics tell apart. Each set is in the order of its names in
// server/metric_names.h.
#ifndef SERVER_METRIC_VALUES_H_
#define SERVER_METRIC_VALUES_H_

#include <cstdint>
#include <string_view>

namespace reprise {

// Where a session's state came from for a turn.
enum class ResumeSource { kNone, kSlot, kMemory, kStore, kClient, kPrefix };

// Why no state of a prompt's beginning was found: it has no whole tile and a
// token more; no prompt began so lately; one did, but its state is not kept;
// all of the prompt is computed, for its log-probabilities.
enum class PrefixMiss { kShort, kUnknown, kNotKept, kLogprobs };

enum class FinishReason {
  kStop,  // end of text
  kStopToken,
  kStopString,
  kLength,
  kTimeLimit,
  kCancelled,
};
std::string_view FinishReasonName(FinishReason reason);

enum class RejectReason {
  kQueueFull,
  kQueueTimeout,
  kQuota,
  kDraining,
  kSessionBusy,
  kTooLarge,
  kUnauthenticated,
};

enum class CancelCause {
  kClient,
  kDeadline,
  kDisconnect,
  kSlowReader,
  kShutdown
};

enum class SessionOp {
  kCreate,
  kAcquire,
  kCommit,
  kSuspend,
  kResume,
  kFork,
  kDelete,
  kTouch,
  kExpire,
  kRewind,
  kRepeat,
  kExport,
  kImport
};

// kOpen: of what clients send.
enum class SnapshotOp { kRead, kWrite, kOpen };
enum class SnapshotFailure {
  kChecksum,
  kSeal,
  kVersion,
  kModelMismatch,
  kShape,
  kNonfinite,
  kIo,
  kNoSpace,
  kTruncated
};

enum class Phase { kPrefill, kDecode, kMixed };

// What is observed once for a finished request.
struct RequestObservation {
  double queue_seconds = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
  int64_t prompt_tokens = 0;  // computed for this request
  int64_t generated_tokens = 0;
};

}  // namespace reprise

#endif  // SERVER_METRIC_VALUES_H_
