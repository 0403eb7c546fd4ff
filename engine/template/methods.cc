// Methods of strings, dicts, lists and `loop`.
#include <algorithm>
#include <optional>
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

// ---- Strings ----------------------------------------------------------------

template <Text (*Change)(TextView)>
Result ChangeCase(Context& context, const Value& self, const BoundArguments&) {
  RETURN_IF_ERROR(context.budget.Build(self.text()->size()));
  return Value::String(Change(*self.text()));
}

template <Side kSide>
Result StripSide(Context& context, const Value& self,
                 const BoundArguments& arguments) {
  const bool spaces = arguments[0] == nullptr || arguments[0]->none();
  ASSIGN_OR_RETURN(const TextView characters, arguments.String(0, U""));
  const Text& text = *self.text();
  RETURN_IF_ERROR(context.budget.Build(text.size()));
  RETURN_IF_ERROR(context.budget.Scan(text.size() * characters.size()));
  return Value::String(
      Strip(text, spaces ? std::nullopt : std::optional(characters), kSide));
}

Result ListOfTexts(const std::vector<TextView>& parts, Budget& budget) {
  std::vector<Value> items;
  for (const TextView part : parts) {
    RETURN_IF_ERROR(budget.Build(part.size()));
    items.push_back(Value::String(part));
  }
  return MakeSequence(std::move(items), SequenceKind::kList, budget);
}

Result Split(Context& context, const Value& self,
             const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const TextView separator, arguments.String(0, U""));
  ASSIGN_OR_RETURN(const int64_t limit, arguments.Int(1, -1));
  const Text& text = *self.text();
  // Up to every other character may be a part, of 16 bytes.
  RETURN_IF_ERROR(context.budget.Build(2 * text.size() + separator.size()));
  if (arguments[0] == nullptr || arguments[0]->none()) {
    return ListOfTexts(SplitWords(text, limit), context.budget);
  }
  if (separator.empty()) {
    return absl::InvalidArgumentError("split() by an empty string");
  }
  return ListOfTexts(SplitAt(text, separator, limit), context.budget);
}

Result Lines(Context& context, const Value& self, const BoundArguments&) {
  RETURN_IF_ERROR(context.budget.Build(4 * self.text()->size()));
  return ListOfTexts(SplitLines(*self.text()), context.budget);
}

// startswith and endswith: one string, or a tuple of them.
template <bool (*Has)(TextView, TextView)>
Result HasEnd(Context& context, const Value& self,
              const BoundArguments& arguments) {
  const Sequence* tuple = arguments[0]->sequence();
  std::vector<Value> ends = {*arguments[0]};
  if (tuple != nullptr && tuple->kind == SequenceKind::kTuple) {
    ends = tuple->items;
  }
  bool found = false;
  for (const Value& end : ends) {
    RETURN_IF_ERROR(CheckDefined(end));
    if (end.text() == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a str does not begin or end with a ", ToAbsl(end.type())));
    }
    RETURN_IF_ERROR(context.budget.Scan(end.text()->size()));
    found = found || Has(*self.text(), *end.text());
  }
  return Value::Bool(found);
}

template <bool kStart>
Result RemoveEnd(Context& context, const Value& self,
                 const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const TextView end, arguments.String(0, U""));
  TextView text = *self.text();
  RETURN_IF_ERROR(context.budget.Build(text.size()));
  RETURN_IF_ERROR(context.budget.Scan(end.size()));
  if (kStart && StartsWith(text, end)) text.remove_prefix(end.size());
  if (!kStart && EndsWith(text, end)) text.remove_suffix(end.size());
  return Value::String(text);
}

Result Replace(Context& context, const Value& self,
               const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const TextView what, arguments.String(0, U""));
  ASSIGN_OR_RETURN(const TextView with, arguments.String(1, U""));
  ASSIGN_OR_RETURN(const int64_t limit, arguments.Int(2, -1));
  return ReplaceText(*self.text(), what, with, limit, context.budget);
}

// The places of a string in this one, none overlapping.
absl::StatusOr<std::vector<size_t>> Places(Context& context, const Value& self,
                                           const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const TextView what, arguments.String(0, U""));
  RETURN_IF_ERROR(context.budget.Build(2 * self.text()->size() + what.size()));
  return FindAll(*self.text(), what, /*limit=*/-1);
}

Result Find(Context& context, const Value& self,
            const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const auto places, Places(context, self, arguments));
  return Value::Int(places.empty() ? -1 : static_cast<int64_t>(places.front()));
}

Result Count(Context& context, const Value& self,
             const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const auto places, Places(context, self, arguments));
  return Value::Int(static_cast<int64_t>(places.size()));
}

Result JoinItems(Context& context, const Value& self,
                 const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const std::vector<Value> items,
                   Iterate(*arguments[0], context.budget));
  Text joined;
  for (size_t i = 0; i < items.size(); ++i) {
    RETURN_IF_ERROR(CheckDefined(items[i]));
    const Text* text = items[i].text();
    if (text == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "join() takes strings, not a ", ToAbsl(items[i].type())));
    }
    RETURN_IF_ERROR(context.budget.Build(text->size() + self.text()->size()));
    if (i > 0) joined += *self.text();
    joined += *text;
  }
  return Value::String(std::move(joined));
}

bool IsDecimalDigit(char32_t c) {
  return Unmarked(c) >= U'0' && Unmarked(c) <= U'9';
}

template <bool (*Holds)(char32_t)>
Result AllAre(Context& context, const Value& self, const BoundArguments&) {
  const Text& text = *self.text();
  RETURN_IF_ERROR(context.budget.Scan(text.size()));
  return Value::Bool(!text.empty() &&
                     std::all_of(text.begin(), text.end(), Holds));
}

// The test of the same name: isupper is `is upper`.
template <const char* kName>
Result AsTest(Context& context, const Value& self, const BoundArguments&) {
  return Invoke(*FindTest(kName), context, self, /*arguments=*/{});
}
constexpr char kUpper[] = "upper";
constexpr char kLower[] = "lower";

// ---- Dicts and lists --------------------------------------------------------

Result Get(Context& context, const Value& self,
           const BoundArguments& arguments) {
  for (const auto& [key, value] : self.dict()->entries) {
    ASSIGN_OR_RETURN(const bool equal,
                     Equals(key, *arguments[0], context.budget));
    if (equal) return value;
  }
  return arguments[1] == nullptr ? Value() : *arguments[1];
}

Result Items(Context& context, const Value& self, const BoundArguments&) {
  std::vector<Value> pairs;
  for (const auto& [key, value] : self.dict()->entries) {
    ASSIGN_OR_RETURN(
        Value pair,
        MakeSequence({key, value}, SequenceKind::kTuple, context.budget));
    pairs.push_back(std::move(pair));
  }
  return MakeSequence(std::move(pairs), SequenceKind::kView, context.budget);
}

template <bool kKeys>
Result KeysOrValues(Context& context, const Value& self,
                    const BoundArguments&) {
  std::vector<Value> parts;
  for (const auto& [key, value] : self.dict()->entries) {
    parts.push_back(kKeys ? key : value);
  }
  return MakeSequence(std::move(parts), SequenceKind::kView, context.budget);
}

Result CountItems(Context& context, const Value& self,
                  const BoundArguments& arguments) {
  int64_t count = 0;
  for (const Value& item : self.sequence()->items) {
    ASSIGN_OR_RETURN(const bool equal,
                     Equals(item, *arguments[0], context.budget));
    count += equal ? 1 : 0;
  }
  return Value::Int(count);
}

Result IndexOf(Context& context, const Value& self,
               const BoundArguments& arguments) {
  const std::vector<Value>& items = self.sequence()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(const bool equal,
                     Equals(items[i], *arguments[0], context.budget));
    if (equal) return Value::Int(static_cast<int64_t>(i));
  }
  return absl::InvalidArgumentError("index() of what is not in the list");
}

// ---- loop -------------------------------------------------------------------

Result Cycle(Context&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) {
    return absl::InvalidArgumentError("cycle() needs values");
  }
  const LoopState& loop = **self.get<LoopState*>();
  return arguments.positional[loop.index % arguments.positional.size()];
}

}  // namespace

std::span<const Builtin> TextMethods() {
  static const std::vector<Builtin>& table = *new std::vector<Builtin>{
      {"capitalize", ChangeCase<Capitalize>},
      {"count", Count, {"sub"}, 1},
      {"endswith", HasEnd<EndsWith>, {"suffix"}, 1},
      {"find", Find, {"sub"}, 1},
      {"isalpha", AllAre<IsLetter>},
      {"isdigit", AllAre<IsDecimalDigit>},
      {"islower", AsTest<kLower>},
      {"isspace", AllAre<IsSpace>},
      {"isupper", AsTest<kUpper>},
      {"join", JoinItems, {"iterable"}, 1},
      {"lower", ChangeCase<Lower>},
      {"lstrip", StripSide<Side::kLeft>, {"chars"}},
      {"removeprefix", RemoveEnd<true>, {"prefix"}, 1},
      {"removesuffix", RemoveEnd<false>, {"suffix"}, 1},
      {"replace", Replace, {"old", "new", "count"}, 2},
      {"rstrip", StripSide<Side::kRight>, {"chars"}},
      {"split", Split, {"sep", "maxsplit"}},
      {"splitlines", Lines},
      {"startswith", HasEnd<StartsWith>, {"prefix"}, 1},
      {"strip", StripSide<Side::kBoth>, {"chars"}},
      {"title", ChangeCase<TitleWords>},
      {"upper", ChangeCase<Upper>},
  };
  return table;
}

std::span<const Builtin> DictMethods() {
  static const std::vector<Builtin>& table = *new std::vector<Builtin>{
      {"get", Get, {"key", "default"}, 1},
      {"items", Items},
      {"keys", KeysOrValues<true>},
      {"values", KeysOrValues<false>},
  };
  return table;
}

std::span<const Builtin> SequenceMethods() {
  static const std::vector<Builtin>& table = *new std::vector<Builtin>{
      {"count", CountItems, {"value"}, 1},
      {"index", IndexOf, {"value"}, 1},
  };
  return table;
}

std::span<const Builtin> LoopMethods() {
  static const std::vector<Builtin>& table = *new std::vector<Builtin>{
      {"cycle", nullptr, {}, 0, Cycle},
  };
  return table;
}

}  // namespace reprise::jinja
