#include "engine/model/config_checks.h"

#include "absl/strings/str_cat.h"
#include "engine/model/adapters.h"

namespace reprise {

int64_t CheckedWidth(ConfigReader& config, const char* field, const char* what,
                     int64_t width) {
  if (width < 1 || width > kMaxWidth) {
    config.Refuse(field,
                  absl::StrCat("makes ", what, " ", width,
                               " numbers wide, the limits are 1..", kMaxWidth));
  }
  return config.status().ok() ? width : 1;
}

int64_t ReadKvHeads(ConfigReader& config, const char* field,
                    const char* heads_field, int64_t heads) {
  const int64_t kv_heads = config.Int(field, 1, kMaxWidth, /*fallback=*/heads);
  if (heads % kv_heads != 0) {
    config.Refuse(field,
                  absl::StrCat("is ", kv_heads, ", which does not divide ",
                               heads_field, " = ", heads));
  }
  return kv_heads;
}

void CheckKeyDim(ConfigReader& config, const char* field, int64_t key_dim,
                 int64_t limit) {
  if (key_dim <= limit) return;
  config.Refuse(field, absl::StrCat("makes ", key_dim,
                                    " keys per head, the limit is ", limit));
}

}  // namespace reprise
