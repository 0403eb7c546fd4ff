// Waiting for what other threads and processes do.
#ifndef TESTS_SUPPORT_EVENTUALLY_H_
#define TESTS_SUPPORT_EVENTUALLY_H_

#include <chrono>
#include <thread>

namespace reprise {

// Whether `condition` comes true within a minute or more: a loaded machine may
// take that long for what takes a second.
//
// Counts its looks and asks no clock. A test that was stopped for a while, by a
// signal or together with its machine, would wake up behind any deadline and
// give up before the thread that it waits for had run again.
template <typename Condition>
bool Eventually(const Condition& condition) {
  constexpr int kLooks = 30'000;
  for (int i = 0; i < kLooks; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

}  // namespace reprise

#endif  // TESTS_SUPPORT_EVENTUALLY_H_
