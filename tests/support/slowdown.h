// How slow a sanitizer makes what is tested.
#ifndef TESTS_SUPPORT_SLOWDOWN_H_
#define TESTS_SUPPORT_SLOWDOWN_H_

namespace reprise {

// Times that are to be beyond what a healthy part takes are multiplied by it.
#if defined(__SANITIZE_THREAD__)
inline constexpr int kSlowdown = 10;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr int kSlowdown = 3;
#else
inline constexpr int kSlowdown = 1;
#endif

}  // namespace reprise

#endif  // TESTS_SUPPORT_SLOWDOWN_H_
