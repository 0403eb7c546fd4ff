#include "engine/base/large_buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <utility>

namespace reprise {
namespace {

constexpr std::align_val_t kAlignment{64};

// From here on straight from the system: an allocator would keep blocks of up
// to 32 MiB for itself, and would not lay them on the borders of huge pages.
constexpr size_t kMappedBytes = size_t{4} << 20;
constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kPageBytes = 4096;

size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::byte* Map(size_t bytes) {
  const size_t length = RoundUp(bytes, kPageBytes);
  const size_t reserved = length + kHugePageBytes;
  if (reserved < bytes) throw std::bad_alloc();
  void* const mapped = mmap(nullptr, reserved, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* const start = static_cast<std::byte*>(mapped);
  const auto address = reinterpret_cast<uintptr_t>(mapped);
  const size_t before = RoundUp(address, kHugePageBytes) - address;
  const size_t after = kHugePageBytes - before;
  if (before > 0) munmap(start, before);
  if (after > 0) munmap(start + before + length, after);
  // Only advice: without it the pages are small.
  madvise(start + before, length, MADV_HUGEPAGE);
  return start + before;
}

}  // namespace

LargeBuffer::LargeBuffer(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  data_ = bytes >= kMappedBytes
              ? Map(bytes)
              : static_cast<std::byte*>(operator new(bytes, kAlignment));
}

LargeBuffer::~LargeBuffer() {
  if (data_ == nullptr) return;
  if (size_ >= kMappedBytes) {
    munmap(data_, RoundUp(size_, kPageBytes));
  } else {
    operator delete(data_, kAlignment);
  }
}

LargeBuffer::LargeBuffer(LargeBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

LargeBuffer& LargeBuffer::operator=(LargeBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace reprise
