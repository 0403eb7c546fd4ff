// Turns of the tests of replicas, and what they must come to.
#ifndef TESTS_INTEGRATION_REPLICA_TURN_H_
#define TESTS_INTEGRATION_REPLICA_TURN_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/support/generate_call.h"

namespace reprise {

// Draws, and depends on all that a session remembers: its random numbers and
// its penalties.
inline v1::GenerateRequest ReplicaTurn(const std::string& text, uint32_t tokens,
                                       uint64_t seed) {
  v1::GenerateRequest request = SessionRequest("s", text, tokens);
  request.mutable_sampling()->set_seed(seed);
  request.mutable_sampling()->set_temperature(1.2F);
  request.mutable_sampling()->set_presence_penalty(0.5F);
  request.mutable_sampling()->set_frequency_penalty(0.2F);
  request.mutable_sampling()->set_penalty_decay(0.99F);
  request.mutable_output()->set_logprobs(3);
  return request;
}

// What acts once, when a completion has so many tokens; 0: when it has started.
// Messages tell less: on a busy machine one brings many tokens.
template <typename Act>
auto OnceAt(uint32_t tokens, Act act) {
  return [tokens, act,
          done = false](const v1::GenerateResponse& message) mutable {
    const bool reached =
        tokens == 0 || message.delta().usage().completion_tokens() >= tokens;
    if (done || !reached) return;
    done = true;
    act();
  };
}

// The same answer to the bit, wherever and however it was made.
inline void ExpectSameAnswer(const Completion& some,
                             const Completion& expected) {
  EXPECT_TRUE(some.status.ok()) << some.status.error_message();
  EXPECT_EQ(some.token_ids, expected.token_ids);
  EXPECT_EQ(some.text, expected.text);
  EXPECT_EQ(some.logprobs, expected.logprobs);
  EXPECT_EQ(some.started.seed(), expected.started.seed());
  EXPECT_EQ(some.started.prompt_tokens(), expected.started.prompt_tokens());
  ASSERT_EQ(some.finished.size(), 1u);
  EXPECT_EQ(some.finished[0].reason(), expected.finished.at(0).reason());
}

}  // namespace reprise

#endif  // TESTS_INTEGRATION_REPLICA_TURN_H_
