// What the service asks of the scheduler.
#ifndef SERVER_TURN_REQUEST_H_
#define SERVER_TURN_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/sampler.h"
#include "engine/template/chat_format.h"
#include "server/seal.h"
#include "server/session_manager.h"

namespace reprise {

// How the log-probabilities of the prompt's tokens, all but the session's
// first, are shown.
enum class PromptLogprobs {
  kNone,
  kWithStarted,  // together, once the prompt is read
  // In the deltas' logprobs, after each step. Such a turn yields to others: it
  // takes the prefill rows that are left, and it pauses while its stream is
  // full.
  kStreamed,
};

// What the messages of a turn come to. It depends on the session.
struct MessagePrompts {
  // For a session that has no token yet.
  absl::StatusOr<std::vector<int32_t>> begin;
  // For one that has.
  absl::StatusOr<Continuation> next;
};

// One turn or stateless completion, validated by the service.
struct TurnRequest {
  std::string request_id;
  std::string tenant;
  std::optional<SessionKey> session;  // none = stateless
  std::optional<SessionKey> preset;   // that a stateless one begins with
  // Likewise, from the client; emptied once it is in a slot.
  std::optional<OpenedSnapshot> snapshot;
  // The state after the turn is given to the client, of each completion that
  // added something.
  std::optional<SealOptions> seal;
  AcquireOptions acquire;
  std::vector<int32_t> prompt;      // may be empty if the session has a token
  std::string_view input = "text";  // the field that the prompt is from
  // Of a turn with messages on a session, which becomes `prompt` when the
  // session is leased: SettlePrompt.
  std::optional<MessagePrompts> messages;
  SamplingParams sampling;
  int64_t max_new_tokens = 16;  // 0 = append only: prefill, then commit
  int64_t min_new_tokens = 0;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_tokens;
  std::vector<int32_t> eos_tokens;  // empty if they are to be ignored
  bool include_stop = false;
  std::optional<int64_t> time_limit_ms;
  bool commit = true;          // sessions only
  bool keep_on_cancel = true;  // in the session, and for the client
  int32_t n = 1;               // more than 1 only without commit
  bool want_text = true;
  bool want_token_ids = false;
  // Alternatives, of the prompt's tokens too; none = no log-probabilities of
  // those generated.
  std::optional<int32_t> logprobs;
  PromptLogprobs prompt_logprobs = PromptLogprobs::kNone;
  int64_t arrival_ns = 0;  // Clock::MonotonicNs when the call came in
};

// Tokens of the prompt, or of the longer one that it may become.
int64_t PromptTokens(const TurnRequest& request);

// Chooses the prompt of a turn with messages by the session that it is for. The
// chosen one's error.
absl::Status SettlePrompt(const SessionRecord& session, TurnRequest& request);

// Whether the answer is stored with the session, to be repeated.
inline bool RecordsOutcome(const TurnRequest& request) {
  return !request.acquire.request.id.empty();
}

inline bool StreamsPrompt(const TurnRequest& request) {
  return request.prompt_logprobs == PromptLogprobs::kStreamed;
}

}  // namespace reprise

#endif  // SERVER_TURN_REQUEST_H_
