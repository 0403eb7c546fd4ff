// A clock that moves only when told to.
#ifndef TESTS_SUPPORT_FAKE_CLOCK_H_
#define TESTS_SUPPORT_FAKE_CLOCK_H_

#include <atomic>
#include <cstdint>

#include "engine/base/clock.h"

namespace reprise {

// Thread-safe.
class FakeClock : public Clock {
 public:
  int64_t MonotonicNs() const override { return now_ms_ * 1'000'000; }
  int64_t UnixMs() const override { return kStartUnixMs + now_ms_; }
  void AdvanceMs(int64_t ms) { now_ms_ += ms; }

 private:
  static constexpr int64_t kStartUnixMs = 1'800'000'000'000;
  std::atomic<int64_t> now_ms_{1};
};

}  // namespace reprise

#endif  // TESTS_SUPPORT_FAKE_CLOCK_H_
