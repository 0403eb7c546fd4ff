// How many threads a test may compute with.
#ifndef TESTS_SUPPORT_TEAMS_H_
#define TESTS_SUPPORT_TEAMS_H_

#include <algorithm>

namespace reprise {

// `threads`, but 1 under ThreadSanitizer: GCC's OpenMP library is not built for
// it, so that it takes the barriers of a team for nothing and sees races in
// every one.
inline int TeamOf(int threads) {
#if defined(__SANITIZE_THREAD__)
  return std::min(threads, 1);
#else
  return threads;
#endif
}

}  // namespace reprise

#endif  // TESTS_SUPPORT_TEAMS_H_
