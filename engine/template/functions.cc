// Global functions: Jinja's, and the two that Hugging Face adds.
#include <array>
#include <ctime>
#include <memory>
#include <string>
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

Result Range(Context& context, const Value&, const BoundArguments& arguments) {
  for (size_t i = 0; i < 3; ++i) {
    if (arguments[i] == nullptr) continue;
    RETURN_IF_ERROR(CheckDefined(*arguments[i]));
    if (arguments[i]->none()) {
      return absl::InvalidArgumentError("range() takes no None");
    }
  }
  ASSIGN_OR_RETURN(int64_t start, arguments.Int(0, 0));
  ASSIGN_OR_RETURN(int64_t stop, arguments.Int(1, 0));
  ASSIGN_OR_RETURN(const int64_t step, arguments.Int(2, 1));
  if (arguments[1] == nullptr) stop = std::exchange(start, 0);
  if (step == 0) return absl::InvalidArgumentError("range() with a step of 0");
  std::vector<Value> numbers;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(numbers.size()) == kMaxRange) {
      return absl::ResourceExhaustedError(
          absl::StrCat("range() has more than ", kMaxRange, " numbers"));
    }
    numbers.push_back(Value::Int(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return MakeSequence(std::move(numbers), SequenceKind::kRange, context.budget);
}

// The entries of a dict that may be the one argument, then the named ones.
absl::StatusOr<std::vector<std::pair<Value, Value>>> Entries(
    const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> entries;
  if (!arguments.positional.empty()) {
    const Dict* dict = arguments.positional[0].dict();
    if (dict == nullptr || arguments.positional.size() > 1) {
      return absl::UnimplementedError(
          "other arguments than a dict and named ones are not supported");
    }
    entries = dict->entries;
  }
  for (const auto& [name, value] : arguments.named) {
    entries.emplace_back(Value::String(name), value);
  }
  return entries;
}

Result NewDict(Context& context, const Value&, const Arguments& arguments) {
  ASSIGN_OR_RETURN(auto entries, Entries(arguments));
  return MakeDict(std::move(entries), context.budget);
}

Result NewNamespace(Context& context, const Value&,
                    const Arguments& arguments) {
  ASSIGN_OR_RETURN(auto entries, Entries(arguments));
  ASSIGN_OR_RETURN(const Value dict,
                   MakeDict(std::move(entries), context.budget));
  constexpr size_t kElements = 4;  // about its size
  RETURN_IF_ERROR(context.budget.BuildElements(kElements));
  auto space = std::make_unique<Namespace>();
  for (const auto& [key, value] : dict.dict()->entries) {
    if (key.text() == nullptr) {
      return absl::InvalidArgumentError("a namespace has strings as names");
    }
    RETURN_IF_ERROR(context.budget.Build(key.text()->size()));
    space->attributes.emplace_back(ToUtf8(*key.text()), value);
  }
  context.namespaces.push_back(std::move(space));
  return Value(Value::Any(context.namespaces.back().get()));
}

Result RaiseException(Context& context, const Value&,
                      const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const Text message, ToText(*arguments[0], context.budget));
  return absl::InvalidArgumentError(ToUtf8(message));
}

Result StrftimeNow(Context& context, const Value&,
                   const BoundArguments& arguments) {
  constexpr size_t kMaxFormat = 256;
  RETURN_IF_ERROR(CheckDefined(*arguments[0]));
  ASSIGN_OR_RETURN(const TextView text, arguments.String(0, U""));
  if (text.size() > kMaxFormat) {
    return absl::InvalidArgumentError(
        absl::StrCat("strftime_now() with a format of ", text.size(),
                     " characters (at most ", kMaxFormat, ")"));
  }
  const std::string format = ToUtf8(text);
  const time_t seconds = context.now_unix_ms / 1000;
  tm local{};
  localtime_r(&seconds, &local);
  std::array<char, 1024> out;
  const size_t size =
      std::strftime(out.data(), out.size(), format.c_str(), &local);
  return Value::String(std::string_view(out.data(), size));
}

}  // namespace

std::span<const Builtin> Functions() {
  static const std::vector<Builtin>& table = *new std::vector<Builtin>{
      {"dict", nullptr, {}, 0, NewDict},
      {"namespace", nullptr, {}, 0, NewNamespace},
      {"raise_exception", RaiseException, {"message"}, 1},
      {"range", Range, {"start", "stop", "step"}, 1},
      {"strftime_now", StrftimeNow, {"format"}, 1},
  };
  return table;
}

}  // namespace reprise::jinja
