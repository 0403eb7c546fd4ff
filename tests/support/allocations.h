// What the program allocates. Linking allocations.cc replaces operator new of
// the whole program, so tests that count are in a program of their own.
#ifndef TESTS_SUPPORT_ALLOCATIONS_H_
#define TESTS_SUPPORT_ALLOCATIONS_H_

#include <cstddef>
#include <cstdint>

namespace reprise {

// Since the program started or ResetAllocations was called, by all threads.
struct Allocations {
  int64_t count = 0;
  size_t largest = 0;  // bytes
};
Allocations CountAllocations();
void ResetAllocations();

}  // namespace reprise

#endif  // TESTS_SUPPORT_ALLOCATIONS_H_
