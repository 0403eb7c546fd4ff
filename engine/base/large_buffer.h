// Memory for weights: aligned for any instruction, in huge pages where the
// system has them, and the system's again as soon as it is freed.
#ifndef ENGINE_BASE_LARGE_BUFFER_H_
#define ENGINE_BASE_LARGE_BUFFER_H_

#include <cstddef>

namespace reprise {

// Owns its bytes, whose first contents are unspecified. Movable; empty after
// having been moved from.
class LargeBuffer {
 public:
  LargeBuffer() = default;
  // Throws std::bad_alloc if there is no memory.
  explicit LargeBuffer(size_t bytes);
  ~LargeBuffer();
  LargeBuffer(LargeBuffer&& other) noexcept;
  LargeBuffer& operator=(LargeBuffer&& other) noexcept;

  // A multiple of 64; null when empty.
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace reprise

#endif  // ENGINE_BASE_LARGE_BUFFER_H_
