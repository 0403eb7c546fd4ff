// Chat templates: the part of Jinja that published ones use, rendered as
// Hugging Face's transformers render it (jinja2 3.1, trim_blocks,
// lstrip_blocks, the immutable sandbox, the extensions for loop controls and
// generation blocks, json.dumps as tojson, raise_exception, strftime_now).
//
// Left out, each with an error that says so: raw, call, filter, with, include,
// import and block tags, recursive loops, `*` arguments, %-formatting, Markup,
// and the filters, tests and methods that builtin.h's tables do not list. Text
// that is escaped or marked safe is plain text. Case changes are one character
// to one. A generator can be gone through once, as in Python, but is made at
// once, not item by item.
#ifndef ENGINE_TEMPLATE_TEMPLATE_H_
#define ENGINE_TEMPLATE_TEMPLATE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/template/budget.h"
#include "engine/template/syntax.h"

namespace reprise::jinja {

struct RenderOptions {
  int64_t now_unix_ms = 0;  // for strftime_now, which tells local time
  RenderLimits limits = {};
};

// Immutable after construction; thread-safe.
class Template {
 public:
  // InvalidArgument, "line N: ...", for what Jinja would refuse; Unimplemented
  // likewise for what is left out.
  static absl::StatusOr<Template> Parse(std::string_view source);

  // Marks of the variables' texts are in the result. Errors begin with the line
  // where it went wrong, roughly: InvalidArgument, also if the template called
  // raise_exception; Unimplemented for what turns up only now;
  // ResourceExhausted, naming the limit, for a template that takes too much.
  absl::StatusOr<Text> Render(
      std::vector<std::pair<std::string, Value>> variables,
      const RenderOptions& options) const;

 private:
  explicit Template(Block block) : block_(std::move(block)) {}

  Block block_;
};

// A value from strings and the like, outside of any render: the same without a
// budget. CHECKs kMaxValueDepth.
Value ListValue(std::vector<Value> items);
Value DictValue(std::vector<std::pair<std::string, Value>> entries);

}  // namespace reprise::jinja

#endif  // ENGINE_TEMPLATE_TEMPLATE_H_
