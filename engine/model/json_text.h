// JSON from outside: bounded in size and depth, no key twice.
#ifndef ENGINE_MODEL_JSON_TEXT_H_
#define ENGINE_MODEL_JSON_TEXT_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace reprise {

struct JsonLimits {
  int64_t max_bytes = 0;
  int max_depth = 0;  // of arrays and objects inside each other
  // Take the word Infinity for a value, which is no JSON but what Python
  // writes; it is read as the string "Infinity".
  bool infinity = false;
};

// The value that `text` holds. InvalidArgument, beginning with `source` (a file
// name), if it is too large or too deep, is not JSON, or has a key twice in one
// object: readers disagree on which of the two counts.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text,
                                         std::string_view source,
                                         const JsonLimits& limits);

// The object in the file at `path`; the messages name the file without its
// folder. NotFound if there is no such file, InvalidArgument as above or if the
// value is no object.
absl::StatusOr<nlohmann::json> ReadJsonObject(const std::string& path,
                                              const JsonLimits& limits);

// `text` in quotes for a message: control characters escaped, cut to a length
// that fits a line.
std::string Quoted(std::string_view text);

}  // namespace reprise

#endif  // ENGINE_MODEL_JSON_TEXT_H_
