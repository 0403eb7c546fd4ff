#include "tests/support/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> g_count{0};
std::atomic<size_t> g_largest{0};

void* Allocate(size_t size) {
  ++g_count;
  if (size > g_largest) g_largest = size;
  return std::malloc(size);
}

void* AllocateOrThrow(size_t size) {
  void* memory = Allocate(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Not inlined: GCC would take malloc and delete for a mismatched pair.
[[gnu::noinline]] void* operator new(size_t size) {
  return AllocateOrThrow(size);
}
[[gnu::noinline]] void* operator new[](size_t size) {
  return AllocateOrThrow(size);
}
[[gnu::noinline]] void* operator new(size_t size,
                                     const std::nothrow_t&) noexcept {
  return Allocate(size);
}
[[gnu::noinline]] void* operator new[](size_t size,
                                       const std::nothrow_t&) noexcept {
  return Allocate(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}

namespace reprise {

Allocations CountAllocations() {
  return {.count = g_count, .largest = g_largest};
}

void ResetAllocations() {
  g_count = 0;
  g_largest = 0;
}

}  // namespace reprise
