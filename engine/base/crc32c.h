// The ways to compute a CRC-32C, for Crc32c of engine/base/bytes.h and tests.
#ifndef ENGINE_BASE_CRC32C_H_
#define ENGINE_BASE_CRC32C_H_

#include <cstdint>
#include <string_view>
#include <vector>

namespace reprise {

struct Crc32cWay {
  const char* name;
  // As Crc32c.
  uint32_t (*crc32c)(std::string_view data, uint32_t crc);
};
// Those that this CPU can go, the fastest first.
std::vector<Crc32cWay> Crc32cWays();

}  // namespace reprise

#endif  // ENGINE_BASE_CRC32C_H_
