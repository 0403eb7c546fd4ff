// Unicode's normalisation forms (Standard Annex 15), through utf8proc.
#ifndef ENGINE_NORMAL_FORM_H_
#define ENGINE_NORMAL_FORM_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace reprise {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// `text`, which is valid UTF-8, in that form. Takes time n log n at most,
// whatever the text. InvalidArgument if it grows to more than kMaxTextBytes
// characters (a character can become 18).
absl::StatusOr<std::string> Normalize(NormalForm form, std::string_view text);

}  // namespace reprise

#endif  // ENGINE_NORMAL_FORM_H_
