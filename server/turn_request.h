// What the service asks of the scheduler.
#ifndef SERVER_TURN_REQUEST_H_
#define SERVER_TURN_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "server/session_manager.h"

namespace reprise {

// One turn or stateless completion, validated by the service.
struct TurnRequest {
  std::string request_id;
  std::string tenant;
  std::optional<SessionKey> session;  // none = stateless
  SessionManager::AcquireOptions acquire;
  std::vector<int32_t> prompt;  // may be empty if the session has a token
  SamplingParams sampling;
  int64_t max_new_tokens = 16;  // 0 = append only: prefill, then commit
  int64_t min_new_tokens = 0;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_tokens;
  std::vector<int32_t> eos_tokens;  // empty if they are to be ignored
  bool include_stop = false;
  std::optional<int64_t> time_limit_ms;
  bool commit = true;          // sessions only
  bool keep_on_cancel = true;  // sessions only
  int32_t n = 1;               // more than 1 only without commit
  bool want_text = true;
  bool want_token_ids = false;
  std::optional<int32_t> logprobs;  // alternatives; none = no log-probabilities
  bool prompt_logprobs = false;
  int64_t arrival_ns = 0;  // Clock::MonotonicNs when the call came in
};

}  // namespace reprise

#endif  // SERVER_TURN_REQUEST_H_
