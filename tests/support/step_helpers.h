// Steps of an engine in a line, for tests.
#ifndef TESTS_SUPPORT_STEP_HELPERS_H_
#define TESTS_SUPPORT_STEP_HELPERS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace reprise {

using Tokens = std::vector<int32_t>;
using Floats = std::vector<float>;

inline Tokens RandomTokens(int64_t count, int64_t vocab_size, uint32_t seed) {
  std::mt19937 random(seed);
  Tokens tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab_size));
  }
  return tokens;
}

// A state and how many tokens it has consumed.
struct TestSession {
  explicit TestSession(const Engine& engine)
      : slot(static_cast<size_t>(engine.layout().slot_bytes()) / 4) {}

  std::byte* data() { return reinterpret_cast<std::byte*>(slot.data()); }

  Floats slot;
  int64_t position = 0;
};

// A segment of the session, which counts it as consumed.
inline StepSegment TakeSegment(TestSession& session,
                               std::span<const int32_t> tokens,
                               LogitsFor logits) {
  const StepSegment segment{.tokens = tokens,
                            .position = session.position,
                            .slot = session.data(),
                            .logits = logits};
  session.position += std::ssize(tokens);
  return segment;
}

// The logits of one segment alone in a step.
inline Floats StepAlone(Engine& engine, TestSession& session,
                        std::span<const int32_t> tokens,
                        LogitsFor logits = LogitsFor::kLastRow) {
  const StepSegment segment = TakeSegment(session, tokens, logits);
  const MatrixView<float> result = engine.Step({&segment, 1});
  return Floats(result.data, result.data + result.rows * result.cols);
}

// Equal bit for bit: 0 and -0 differ, NaN equals itself.
inline bool SameBits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace reprise

#endif  // TESTS_SUPPORT_STEP_HELPERS_H_
