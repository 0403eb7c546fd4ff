// Time as an interface, so that tests own it.
#ifndef ENGINE_BASE_CLOCK_H_
#define ENGINE_BASE_CLOCK_H_

#include <cstdint>

namespace reprise {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  // Nanoseconds of a clock that never goes back; for durations.
  virtual int64_t MonotonicNs() const = 0;
  // Milliseconds since the Unix epoch; for times that outlive the process.
  virtual int64_t UnixMs() const = 0;

  // The machine's clock; lives for ever.
  static const Clock& Real();
};

}  // namespace reprise

#endif  // ENGINE_BASE_CLOCK_H_
