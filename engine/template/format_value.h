// Values as text: as Python prints them, and as JSON.
#ifndef ENGINE_TEMPLATE_FORMAT_VALUE_H_
#define ENGINE_TEMPLATE_FORMAT_VALUE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/template/budget.h"
#include "engine/template/marked_text.h"
#include "engine/template/value.h"

namespace reprise::jinja {

// Python's str(). Unimplemented for what a template has no reason to print: a
// generator, a macro.
absl::StatusOr<Text> ToText(const Value& value, Budget& budget);

struct JsonFormat {
  // None: all in one line. Otherwise what a level is indented by.
  std::optional<Text> indent;
  Text item_separator = U", ";
  Text key_separator = U": ";
  bool ensure_ascii = false;
  bool sort_keys = false;
};

// Python's json.dumps(). InvalidArgument for what JSON has no form for.
absl::StatusOr<Text> ToJson(const Value& value, const JsonFormat& format,
                            Budget& budget);

// str.replace: up to `limit` places if it is not negative.
absl::StatusOr<Value> ReplaceText(TextView text, TextView what, TextView with,
                                  int64_t limit, Budget& budget);

// repr() of a float: the shortest digits that read as the same number.
std::string FloatText(double value);

}  // namespace reprise::jinja

#endif  // ENGINE_TEMPLATE_FORMAT_VALUE_H_
