// Snapshots that were changed on purpose.
#ifndef TESTS_ENGINE_STATE_RESEALED_H_
#define TESTS_ENGINE_STATE_RESEALED_H_

#include <cstdint>
#include <string>

#include "engine/base/bytes.h"

namespace reprise {

// `blob` with the checksum that its other bytes have now.
inline std::string Resealed(std::string blob) {
  blob.resize(blob.size() - sizeof(uint32_t));
  const uint32_t checksum = Crc32c(blob);
  blob.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  return blob;
}

}  // namespace reprise

#endif  // TESTS_ENGINE_STATE_RESEALED_H_
