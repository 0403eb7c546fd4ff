#include "engine/template/template.h"

#include <limits>

#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/template/evaluator.h"
#include "engine/template/lexer.h"
#include "engine/template/parser.h"

namespace reprise::jinja {
namespace {

// For values that the limits of others have bounded already.
Budget Unlimited() {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return Budget({kMost, kMost, kMost, kMost});
}

}  // namespace

absl::StatusOr<Template> Template::Parse(std::string_view source) {
  ASSIGN_OR_RETURN(Block block, ParseTemplate(source));
  return Template(std::move(block));
}

absl::StatusOr<Text> Template::Render(
    std::vector<std::pair<std::string, Value>> variables,
    const RenderOptions& options) const {
  Context context{.budget = Budget(options.limits),
                  .now_unix_ms = options.now_unix_ms};
  Evaluator evaluator(context);
  absl::StatusOr<Text> text = evaluator.Run(block_, std::move(variables));
  if (text.ok()) return text;
  return ErrorAt(evaluator.line(), text.status().code(),
                 FromAbsl(text.status().message()));
}

Value ListValue(std::vector<Value> items) {
  Budget budget = Unlimited();
  absl::StatusOr<Value> list =
      MakeSequence(std::move(items), SequenceKind::kList, budget);
  CHECK(list.ok());
  return *std::move(list);
}

Value DictValue(std::vector<std::pair<std::string, Value>> entries) {
  std::vector<std::pair<Value, Value>> values;
  for (auto& [name, value] : entries) {
    values.emplace_back(Value::String(name), std::move(value));
  }
  Budget budget = Unlimited();
  absl::StatusOr<Value> dict = MakeDict(std::move(values), budget);
  CHECK(dict.ok());
  return *std::move(dict);
}

}  // namespace reprise::jinja
