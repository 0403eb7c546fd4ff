// Strings as Python's repr() writes them.
#ifndef ENGINE_PYTHON_LITERAL_H_
#define ENGINE_PYTHON_LITERAL_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace reprise {

// The bytes of `literal`: 'text' (as UTF-8) or b'bytes', in either kind of
// quotes, with the escapes \\ \' \" \a \b \f \n \r \t \v \xHH and, for text,
// \uHHHH and \UHHHHHHHH. InvalidArgument, beginning with "has", for anything
// else, also for surrogates and for text that is not UTF-8.
absl::StatusOr<std::string> ParsePythonLiteral(std::string_view literal);

}  // namespace reprise

#endif  // ENGINE_PYTHON_LITERAL_H_
