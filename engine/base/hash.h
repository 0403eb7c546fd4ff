// A hash for fingerprints.
#ifndef ENGINE_BASE_HASH_H_
#define ENGINE_BASE_HASH_H_

#include <cstdint>
#include <string_view>

namespace reprise {

// FNV-1a (Fowler, Noll, Vo; 64 bits): stable for ever, since snapshots carry
// its results, and good enough to tell descriptions apart that nobody made to
// collide.
constexpr uint64_t Fnv1a(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  }
  return hash;
}

}  // namespace reprise

#endif  // ENGINE_BASE_HASH_H_
