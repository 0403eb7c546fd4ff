// Which tokens a fake engine's state has consumed: every state that a step goes
// through is noted with the one before it.
#ifndef TESTS_SUPPORT_TOKEN_TRACE_H_
#define TESTS_SUPPORT_TOKEN_TRACE_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/base/log.h"
#include "tests/support/fake_engine.h"

namespace reprise {

// Used by the thread that runs the engine. Not for engines whose cuts matter.
class TokenTrace {
 public:
  // Call it at the start of every step.
  void Watch(const FakeEngine& engine, std::span<const StepSegment> segments) {
    for (const StepSegment& segment : segments) {
      FakeState state = engine.Load(segment.slot);
      for (int32_t token : segment.tokens) {
        const uint64_t before = state.Hash();
        state.Consume(static_cast<uint64_t>(token));
        came_from_[state.Hash()] = {.before = before, .token = token};
      }
    }
  }

  // The tokens of a state that a watched step made, oldest first.
  std::vector<int32_t> History(const FakeState& state) const {
    std::vector<int32_t> tokens;
    const uint64_t empty = FakeState().Hash();
    for (uint64_t hash = state.Hash(); hash != empty;) {
      const auto entry = came_from_.find(hash);
      CHECK(entry != came_from_.end());
      tokens.push_back(entry->second.token);
      hash = entry->second.before;
    }
    std::reverse(tokens.begin(), tokens.end());
    return tokens;
  }

 private:
  struct Origin {
    uint64_t before = 0;
    int32_t token = 0;
  };
  std::unordered_map<uint64_t, Origin> came_from_;
};

}  // namespace reprise

#endif  // TESTS_SUPPORT_TOKEN_TRACE_H_
