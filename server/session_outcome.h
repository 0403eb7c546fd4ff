// What a turn answered, as it is kept beside its session, so that its request
// can be answered again without being carried out again.
#ifndef SERVER_SESSION_OUTCOME_H_
#define SERVER_SESSION_OUTCOME_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/metrics.h"
#include "server/token_stream.h"

namespace reprise {

// Text and token ids of an answer together, 4 bytes for an id. Of a longer one
// only the rest is kept.
inline constexpr uint64_t kMaxOutcomeBytes = 1 << 20;

struct TurnOutcome {
  // As they were streamed: what the request wanted to see.
  std::string text;
  std::vector<int32_t> token_ids;
  FinishReason reason = FinishReason::kStop;
  std::string matched_stop;
  std::optional<int32_t> matched_token;
  TokenUsage usage;
  uint64_t seed = 0;
  uint64_t revision_before = 0;
  uint64_t revision = 0;      // that it made; not encoded, the entry has it
  uint64_t answer_bytes = 0;  // of text and ids, also where they are not kept

  // Adds what was streamed next; drops it all beyond kMaxOutcomeBytes.
  void Add(std::string_view more_text, const std::vector<int32_t>& more_ids);
  bool whole() const { return answer_bytes <= kMaxOutcomeBytes; }
};

std::string EncodeOutcome(const TurnOutcome& outcome);
// DataLoss if it is damaged; FailedPrecondition if it is whole but of another
// version, a newer program's.
absl::StatusOr<TurnOutcome> DecodeOutcome(std::string_view bytes);

}  // namespace reprise

#endif  // SERVER_SESSION_OUTCOME_H_
