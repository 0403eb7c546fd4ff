#include "engine/mixer/session_groups.h"

#include <algorithm>

#include "engine/base/parallel.h"

namespace reprise {

void ForEachSessionGroup(std::span<const Segment> segments, int64_t count,
                         int64_t floats,
                         absl::FunctionRef<void(const SessionGroup&)> advance) {
  const int64_t sessions = std::ssize(segments);
  const int64_t groups = std::min<int64_t>(count, NumThreads());
  ForEach(groups * sessions, floats / (groups * sessions), [&](int64_t i) {
    const int64_t group = i / sessions;
    advance({.segment = segments[static_cast<size_t>(i % sessions)],
             .first = group * count / groups,
             .last = (group + 1) * count / groups});
  });
}

}  // namespace reprise
