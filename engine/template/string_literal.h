// What a quoted string of a template stands for.
#ifndef ENGINE_TEMPLATE_STRING_LITERAL_H_
#define ENGINE_TEMPLATE_STRING_LITERAL_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace reprise::jinja {

// `quoted`, without its quotes, with Python's escapes replaced; unknown ones
// stay as they are. InvalidArgument for one that is malformed or a surrogate,
// Unimplemented for a character by name (\N).
absl::StatusOr<std::string> UnescapeString(std::string_view quoted);

}  // namespace reprise::jinja

#endif  // ENGINE_TEMPLATE_STRING_LITERAL_H_
