#include "engine/base/large_buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <tuple>
#include <utility>

#include "engine/base/mutex.h"

namespace reprise {
namespace {

constexpr std::align_val_t kAlignment{64};

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

// What buffers below kOwnBytes share, in huge pages.
class LargeBuffer::Arena {
 public:
  static constexpr size_t kBytes = size_t{32} << 20;
  // Less is left to the allocator.
  static constexpr size_t kLeastBytes = size_t{64} << 10;

  // One that has room, and the room.
  static std::pair<std::shared_ptr<Arena>, std::byte*> Take(size_t bytes) {
    struct Shared {
      Mutex mu;
      std::weak_ptr<Arena> newest ABSL_GUARDED_BY(mu);
    };
    static Shared& shared = *new Shared;
    const size_t length = RoundUp(bytes, static_cast<size_t>(kAlignment));
    MutexLock lock(shared.mu);
    std::shared_ptr<Arena> arena = shared.newest.lock();
    if (arena == nullptr || kBytes - arena->used_ < length) {
      arena = std::make_shared<Arena>();
      shared.newest = arena;
    }
    std::byte* const data = arena->start_ + arena->used_;
    arena->used_ += length;
    return {std::move(arena), data};
  }

  Arena() : start_(Map(kBytes)) {}
  ~Arena() { munmap(start_, kBytes); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

 private:
  std::byte* const start_;
  size_t used_ = 0;  // guarded by Take's mutex
};

LargeBuffer::LargeBuffer(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  if (bytes >= kOwnBytes) {
    data_ = Map(bytes);
  } else if (bytes >= Arena::kLeastBytes) {
    std::tie(arena_, data_) = Arena::Take(bytes);
  } else {
    data_ = static_cast<std::byte*>(operator new(bytes, kAlignment));
  }
}

LargeBuffer::~LargeBuffer() {
  if (data_ == nullptr || arena_ != nullptr) return;
  if (size_ >= kOwnBytes) {
    munmap(data_, RoundUp(size_, kPageBytes));
  } else {
    operator delete(data_, kAlignment);
  }
}

LargeBuffer::LargeBuffer(LargeBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      arena_(std::move(other.arena_)) {}

LargeBuffer& LargeBuffer::operator=(LargeBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(arena_, other.arena_);
  return *this;
}

}  // namespace reprise
