// Philox 4x32 with 10 rounds (Salmon, Moraes, Dror and Shaw 2011, "Parallel
// random numbers: as easy as 1, 2, 3"): random numbers as a function of a key
// and a counter, with no state beside them.
#ifndef ENGINE_PHILOX_H_
#define ENGINE_PHILOX_H_

#include <array>
#include <cstdint>

namespace reprise {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

inline PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// The number of that index in the sequence of `seed`: uniform in [0, 1), a
// multiple of 2^-53.
inline double PhiloxUniform(uint64_t seed, uint64_t index) {
  const PhiloxCounter words = Philox4x32(
      {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = uint64_t{words[1]} << 32 | words[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace reprise

#endif  // ENGINE_PHILOX_H_
