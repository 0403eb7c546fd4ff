// The numbers of a state as they are written down: every bit, or rounded to
// half as many.
#ifndef ENGINE_STATE_STATE_ELEMENTS_H_
#define ENGINE_STATE_STATE_ELEMENTS_H_

#include <cstddef>
#include <cstdint>

namespace reprise {

enum class StateEncoding {
  kF32,   // as they lie in a slot
  kBf16,  // the upper half of an f32, rounded to the nearest, ties to even
};

// Bytes of one element.
constexpr size_t ElementBytes(StateEncoding encoding) {
  return encoding == StateEncoding::kF32 ? sizeof(float) : sizeof(uint16_t);
}

// Whether none of `count` elements is a NaN or an infinity. They may lie at any
// address.
bool AllFinite(const void* elements, StateEncoding encoding, int64_t count);

// Writes `count` elements to `out` in another encoding, or in the same. What is
// too large for bf16 becomes the largest number that it has: finite numbers
// stay finite. Both may lie at any address and must not overlap.
void ConvertElements(const void* elements, StateEncoding from, int64_t count,
                     StateEncoding to, void* out);

}  // namespace reprise

#endif  // ENGINE_STATE_STATE_ELEMENTS_H_
