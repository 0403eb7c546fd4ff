// What several families ask of the fields of their configs.
#ifndef ENGINE_MODEL_CONFIG_CHECKS_H_
#define ENGINE_MODEL_CONFIG_CHECKS_H_

#include <cstdint>

#include "engine/model/config_reader.h"

namespace reprise {

// Far above any published value of a number of positions.
inline constexpr int64_t kMaxPositions = int64_t{1} << 40;

// Refuses `field`, which sets the width of `what`, unless `width` is in
// 1..kMaxWidth. Returns the width, or 1 if there is an error.
int64_t CheckedWidth(ConfigReader& config, const char* field, const char* what,
                     int64_t width);

// The number of heads in `field`, as many as `heads` if it is absent. Refuses
// one that does not divide `heads`, which is that of `heads_field`.
int64_t ReadKvHeads(ConfigReader& config, const char* field,
                    const char* heads_field, int64_t heads);

// Refuses `field`, which sets the width of a head's keys, if `key_dim` is above
// `limit`, that of a kernel.
void CheckKeyDim(ConfigReader& config, const char* field, int64_t key_dim,
                 int64_t limit);

}  // namespace reprise

#endif  // ENGINE_MODEL_CONFIG_CHECKS_H_
