// What a completion must be, by a plain loop over single tokens: no batch, no
// tiles, no slots, no streams.
#ifndef TESTS_SUPPORT_REFERENCE_COMPLETION_H_
#define TESTS_SUPPORT_REFERENCE_COMPLETION_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "server/turn_request.h"
#include "tests/support/fake_engine.h"

namespace reprise {

// A session as a list of tokens.
struct ReferenceSession {
  std::vector<int32_t> tokens;
  SamplerMemory memory;
  std::string pending_text;  // for ReferenceText to keep
};

inline FakeState ReferenceState(std::span<const int32_t> tokens) {
  FakeState state;
  for (int32_t token : tokens) state.Consume(static_cast<uint64_t>(token));
  return state;
}

inline std::vector<float> LogitsOf(const FakeState& state,
                                   int64_t vocab_size = 32) {
  std::vector<float> logits(static_cast<size_t>(vocab_size));
  for (int64_t v = 0; v < vocab_size; ++v) {
    logits[static_cast<size_t>(v)] = state.Logit(v);
  }
  return logits;
}

inline std::vector<float> ReferenceLogits(std::span<const int32_t> tokens) {
  return LogitsOf(ReferenceState(tokens));
}

inline void ReferenceRemember(int32_t token, const TurnRequest& request,
                              ReferenceSession& session) {
  RememberToken(token, static_cast<int64_t>(session.tokens.size()),
                request.sampling.penalty_decay, session.memory);
  session.tokens.push_back(token);
}

// Adds the prompt and the completion to `session` and returns the completion.
// Takes no notice of stop strings.
inline std::vector<int32_t> ReferenceTurn(const TurnRequest& request,
                                          ReferenceSession& session,
                                          int64_t vocab_size = 32) {
  const auto is_in = [](const std::vector<int32_t>& tokens, int32_t token) {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  };
  GrowWindow(request.sampling, session.memory);
  for (int32_t token : request.prompt) {
    ReferenceRemember(token, request, session);
  }
  std::vector<int32_t> banned = request.eos_tokens;
  for (int32_t token : request.stop_tokens) banned.push_back(token);
  Sampler sampler(vocab_size);
  std::vector<int32_t> output;
  FakeState state = ReferenceState(session.tokens);
  while (static_cast<int64_t>(output.size()) < request.max_new_tokens) {
    std::vector<float> logits = LogitsOf(state, vocab_size);
    SampleOptions options;
    if (static_cast<int64_t>(output.size()) < request.min_new_tokens) {
      options.banned = banned;
    }
    const int32_t token =
        sampler
            .Sample(logits, request.sampling, options,
                    static_cast<int64_t>(session.tokens.size()), session.memory)
            .token;
    ReferenceRemember(token, request, session);
    state.Consume(static_cast<uint64_t>(token));
    output.push_back(token);
    if (is_in(banned, token)) break;
  }
  return output;
}

}  // namespace reprise

#endif  // TESTS_SUPPORT_REFERENCE_COMPLETION_H_
