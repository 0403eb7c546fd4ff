// How the work of a step is cut among threads: sessions times groups of heads
// or channels.
#ifndef ENGINE_MIXER_SESSION_GROUPS_H_
#define ENGINE_MIXER_SESSION_GROUPS_H_

#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "engine/mixer/mixer.h"

namespace reprise {

// Neighbouring heads or channels of one session.
struct SessionGroup {
  const Segment& segment;
  int64_t first = 0;
  int64_t last = 0;  // one past
};

// Calls `advance` for groups that cover all `count` heads or channels (1 or
// more) of every segment's session, on the team's threads. Groups are
// outermost: each thread gets the same heads of every session, so that a long
// prompt among decoding sessions spreads over all threads. Results must not
// depend on the groups, whose number is that of the threads. `floats` is the
// work in all, as ForEach counts it.
void ForEachSessionGroup(std::span<const Segment> segments, int64_t count,
                         int64_t floats,
                         absl::FunctionRef<void(const SessionGroup&)> advance);

}  // namespace reprise

#endif  // ENGINE_MIXER_SESSION_GROUPS_H_
