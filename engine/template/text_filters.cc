// Filters that make text of text; other values are printed first.
#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/template/builtin.h"
#include "engine/template/format_value.h"
#include "engine/template/operators.h"

namespace reprise::jinja {
namespace {

using Result = absl::StatusOr<Value>;

template <Text (*Change)(TextView)>
Result ChangeText(Context& context, const Value& self, const BoundArguments&) {
  ASSIGN_OR_RETURN(const Text text, ToText(self, context.budget));
  RETURN_IF_ERROR(context.budget.Build(text.size()));
  return Value::String(Change(text));
}

// Jinja's own notion of a title: a word begins after white space, a dash or an
// opening bracket.
Text TitleOfFilter(TextView text) {
  Text changed;
  bool inside = false;
  for (const char32_t c : text) {
    const char32_t code = Unmarked(c);
    const bool separates = IsSpace(c) || code == '-' || code == '(' ||
                           code == '{' || code == '[' || code == '<';
    changed += inside ? ToLower(c) : ToUpper(c);
    inside = !separates;
  }
  return changed;
}

Result String(Context& context, const Value& self, const BoundArguments&) {
  if (self.text() != nullptr) return self;
  ASSIGN_OR_RETURN(Text text, ToText(self, context.budget));
  return Value::String(std::move(text));
}

Result Trim(Context& context, const Value& self,
            const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const Text text, ToText(self, context.budget));
  const bool spaces = arguments[0] == nullptr || arguments[0]->none();
  ASSIGN_OR_RETURN(const TextView characters, arguments.String(0, U""));
  RETURN_IF_ERROR(context.budget.Scan(text.size() *
                                      std::max<size_t>(1, characters.size())));
  return Value::String(Strip(
      text, spaces ? std::nullopt : std::optional(characters), Side::kBoth));
}

Result Replace(Context& context, const Value& self,
               const BoundArguments& arguments) {
  Budget& budget = context.budget;
  ASSIGN_OR_RETURN(const Text text, ToText(self, budget));
  ASSIGN_OR_RETURN(const Text what, ToText(*arguments[0], budget));
  ASSIGN_OR_RETURN(const Text with, ToText(*arguments[1], budget));
  ASSIGN_OR_RETURN(const int64_t limit, arguments.Int(2, -1));
  return ReplaceText(text, what, with, limit, budget);
}

Result Escape(Context& context, const Value& self, const BoundArguments&) {
  ASSIGN_OR_RETURN(const Text text, ToText(self, context.budget));
  RETURN_IF_ERROR(context.budget.Build(5 * text.size()));
  Text escaped;
  for (const char32_t c : text) {
    const char32_t mark = c & kMarks;
    std::u32string_view name;
    switch (Unmarked(c)) {
      case U'&':
        name = U"&amp;";
        break;
      case U'<':
        name = U"&lt;";
        break;
      case U'>':
        name = U"&gt;";
        break;
      case U'\'':
        name = U"&#39;";
        break;
      case U'"':
        name = U"&#34;";
        break;
      default:
        escaped += c;
        continue;
    }
    for (const char32_t part : name) escaped += part | mark;
  }
  return Value::String(std::move(escaped));
}

Result Indent(Context& context, const Value& self,
              const BoundArguments& arguments) {
  RETURN_IF_ERROR(CheckDefined(self));
  if (self.text() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("indent() needs a str, not a ", ToAbsl(self.type())));
  }
  const Text& text = *self.text();
  Text by;
  if (arguments[0] != nullptr && arguments[0]->text() != nullptr) {
    by = *arguments[0]->text();
  } else {
    ASSIGN_OR_RETURN(const int64_t width, arguments.Int(0, 4));
    const auto size = static_cast<size_t>(std::max<int64_t>(width, 0));
    RETURN_IF_ERROR(context.budget.Build(size));
    by.assign(size, U' ');
  }
  ASSIGN_OR_RETURN(const bool first, arguments.Bool(1, false));
  ASSIGN_OR_RETURN(const bool blank, arguments.Bool(2, false));
  std::vector<TextView> lines = SplitLines(text);
  // Without it a newline at the end would be lost: Jinja adds one and splits.
  if (lines.empty() ||
      (!text.empty() && SplitLines(text.substr(text.size() - 1))[0].empty())) {
    lines.push_back(U"");
  }
  RETURN_IF_ERROR(context.budget.BuildElements(lines.size()));
  RETURN_IF_ERROR(context.budget.Build(text.size()));
  for (size_t i = 0; i < lines.size(); ++i) {
    RETURN_IF_ERROR(context.budget.Build(by.size()));
  }
  Text indented;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) indented += U'\n';
    const bool indent = i == 0 ? first : blank || !lines[i].empty();
    if (indent) indented += by;
    indented += lines[i];
  }
  return Value::String(std::move(indented));
}

}  // namespace

std::span<const Builtin> TextFilters() {
  static const std::vector<Builtin>& table = *new std::vector<Builtin>{
      {"capitalize", ChangeText<Capitalize>},
      {"e", Escape},
      {"escape", Escape},
      {"indent", Indent, {"width", "first", "blank"}},
      {"lower", ChangeText<Lower>},
      {"replace", Replace, {"old", "new", "count"}, 2},
      // There is no text here that would be escaped if it were not safe.
      {"safe", String},
      {"string", String},
      {"title", ChangeText<TitleOfFilter>},
      {"trim", Trim, {"chars"}},
      {"upper", ChangeText<Upper>},
  };
  return table;
}

}  // namespace reprise::jinja
