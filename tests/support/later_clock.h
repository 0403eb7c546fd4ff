// The machine's clock, some seconds ahead: files that a test has just written
// are old by it.
#ifndef TESTS_SUPPORT_LATER_CLOCK_H_
#define TESTS_SUPPORT_LATER_CLOCK_H_

#include <cstdint>

#include "engine/base/clock.h"

namespace reprise {

// Thread-safe.
class LaterClock : public Clock {
 public:
  int64_t MonotonicNs() const override { return Real().MonotonicNs(); }
  int64_t UnixMs() const override { return Real().UnixMs() + 10'000; }
};

}  // namespace reprise

#endif  // TESTS_SUPPORT_LATER_CLOCK_H_
