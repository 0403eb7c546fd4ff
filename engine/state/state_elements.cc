#include "engine/state/state_elements.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/kernels/simd_ops.h"

namespace reprise {
namespace {

// The bytes may lie at any address, hence copies; blocks let the compiler use
// vectors.
constexpr int64_t kBlock = 256;

// The exponent has all ones in an infinity and in a NaN.
bool AllFiniteBf16(const char* bytes, int64_t count) {
  constexpr uint16_t kExponent = 0x7f80;
  uint16_t bad = 0;
  for (int64_t start = 0; start < count; start += kBlock) {
    std::array<uint16_t, kBlock> block{};
    const int64_t size = std::min(kBlock, count - start);
    std::memcpy(block.data(), bytes + start * 2, size * 2);
    for (const uint16_t bits : block) {
      bad |= static_cast<uint16_t>((bits & kExponent) == kExponent);
    }
  }
  return bad == 0;
}

uint16_t ToBf16(uint32_t bits) {
  constexpr uint32_t kSign = 0x8000, kLargest = 0x7f7f;
  // Half a unit of what remains, and a little more where that is odd.
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t magnitude = std::min(rounded & ~kSign, kLargest);
  return static_cast<uint16_t>((rounded & kSign) | magnitude);
}

}  // namespace

bool AllFinite(const void* elements, StateEncoding encoding, int64_t count) {
  if (encoding == StateEncoding::kF32) {
    // Whose loads are those for any address.
    return AllFinite(static_cast<const float*>(elements), count);
  }
  return AllFiniteBf16(static_cast<const char*>(elements), count);
}

void ConvertElements(const void* elements, StateEncoding from, int64_t count,
                     StateEncoding to, void* out) {
  if (from == to) {
    std::memcpy(out, elements, count * ElementBytes(to));
    return;
  }
  const char* source = static_cast<const char*>(elements);
  char* target = static_cast<char*>(out);
  std::array<uint32_t, kBlock> wide{};
  std::array<uint16_t, kBlock> narrow{};
  for (int64_t start = 0; start < count; start += kBlock) {
    const int64_t size = std::min(kBlock, count - start);
    if (to == StateEncoding::kBf16) {
      std::memcpy(wide.data(), source + start * 4, size * 4);
      for (int64_t i = 0; i < kBlock; ++i) narrow[i] = ToBf16(wide[i]);
      std::memcpy(target + start * 2, narrow.data(), size * 2);
    } else {
      std::memcpy(narrow.data(), source + start * 2, size * 2);
      for (int64_t i = 0; i < kBlock; ++i) {
        wide[i] = static_cast<uint32_t>(narrow[i]) << 16;
      }
      std::memcpy(target + start * 4, wide.data(), size * 4);
    }
  }
}

}  // namespace reprise
