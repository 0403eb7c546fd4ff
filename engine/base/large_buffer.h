// Memory for weights: aligned for any instruction, in huge pages where the
// system has them, and the system's again as soon as it is freed. Buffers of
// 64 KiB to 4 MiB, as the matrices of small models are, lie together in arenas
// of 32 MiB, or none of them would have a huge page; an arena is freed with the
// last of its buffers.
#ifndef ENGINE_BASE_LARGE_BUFFER_H_
#define ENGINE_BASE_LARGE_BUFFER_H_

#include <cstddef>
#include <memory>

namespace reprise {

// Owns its bytes, whose first contents are unspecified. Movable; empty after
// having been moved from.
class LargeBuffer {
 public:
  // From here on a buffer shares no arena. What comes and goes, or grows, asks
  // for as much, so as to leave no holes in one.
  static constexpr size_t kOwnBytes = size_t{4} << 20;

  LargeBuffer() = default;
  // Throws std::bad_alloc if there is no memory. Thread-safe.
  explicit LargeBuffer(size_t bytes);
  ~LargeBuffer();
  LargeBuffer(LargeBuffer&& other) noexcept;
  LargeBuffer& operator=(LargeBuffer&& other) noexcept;

  // A multiple of 64; null when empty.
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  class Arena;

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::shared_ptr<Arena> arena_;  // shared: all buffers in it
};

}  // namespace reprise

#endif  // ENGINE_BASE_LARGE_BUFFER_H_
