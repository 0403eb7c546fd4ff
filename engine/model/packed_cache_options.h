// Whether packed weights are kept in a file, and where.
#ifndef ENGINE_MODEL_PACKED_CACHE_OPTIONS_H_
#define ENGINE_MODEL_PACKED_CACHE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace reprise {

struct PackedCacheOptions {
  bool enabled = false;
  std::string dir;  // an existing folder; empty: the model's
  // Of the tensors that the model uses. Smaller models are packed anew at every
  // start, which takes about a tenth of a second for as many bytes.
  int64_t min_model_bytes = int64_t{64} << 20;
};

enum class PackedCacheUse {
  kOff,      // not enabled
  kSmall,    // the model has fewer than min_model_bytes
  kNone,     // neither read nor written, as the log says
  kRead,     // the weights come from the file
  kWritten,  // the weights were packed, and the file is there for the next
             // start
};

// "off", "small", "none", "read", "written".
std::string_view PackedCacheUseName(PackedCacheUse use);

}  // namespace reprise

#endif  // ENGINE_MODEL_PACKED_CACHE_OPTIONS_H_
