// Filters of any value: numbers, defaults, JSON.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/template/builtin.h"
#include "engine/template/format_value.h"
#include "engine/template/operators.h"

namespace reprise::jinja {
namespace {

using Result = absl::StatusOr<Value>;

Result Default(Context&, const Value& self, const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const bool falsy_too, arguments.Bool(1, false));
  if (!self.undefined() && (self.truthy() || !falsy_too)) return self;
  return arguments[0] == nullptr ? Value::String(TextView()) : *arguments[0];
}

// The number in a text as Python reads it, with white space around it; nothing
// if it is none.
std::optional<int64_t> ReadInt(const Text& text) {
  std::string digits = ToUtf8(Strip(text, std::nullopt, Side::kBoth));
  if (digits.starts_with('+') && digits.size() > 1 && digits[1] != '-') {
    digits.erase(0, 1);
  }
  int64_t number = 0;
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return number;
}

std::optional<double> ReadDouble(const Text& text) {
  double number = 0;
  const std::string digits = ToUtf8(Strip(text, std::nullopt, Side::kBoth));
  if (!absl::SimpleAtod(digits, &number)) return std::nullopt;
  return number;
}

// Towards zero; nothing if it does not fit.
std::optional<int64_t> Truncate(double number) {
  if (!(std::abs(number) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(number);
}

Result Int(Context& context, const Value& self,
           const BoundArguments& arguments) {
  RETURN_IF_ERROR(CheckDefined(self));
  ASSIGN_OR_RETURN(const int64_t base, arguments.Int(1, 10));
  if (base != 10) {
    return absl::UnimplementedError("int() in another base is not supported");
  }
  std::optional<int64_t> number;
  if (const Text* text = self.text()) {
    RETURN_IF_ERROR(context.budget.Scan(text->size()));
    number = ReadInt(*text);
    if (!number.has_value()) {
      RETURN_IF_ERROR(context.budget.Scan(text->size()));
      const std::optional<double> real = ReadDouble(*text);
      if (real.has_value()) number = Truncate(*real);
    }
  } else if (const double* real = self.get<double>()) {
    number = Truncate(*real);
  } else if (const bool* flag = self.get<bool>()) {
    number = *flag ? 1 : 0;
  } else if (self.get<int64_t>() != nullptr) {
    return self;
  }
  if (number.has_value()) return Value::Int(*number);
  return arguments[0] == nullptr ? Value::Int(0) : *arguments[0];
}

Result Float(Context& context, const Value& self,
             const BoundArguments& arguments) {
  RETURN_IF_ERROR(CheckDefined(self));
  std::optional<double> number;
  if (const Text* text = self.text()) {
    RETURN_IF_ERROR(context.budget.Scan(text->size()));
    number = ReadDouble(*text);
  } else if (const int64_t* whole = self.get<int64_t>()) {
    number = static_cast<double>(*whole);
  } else if (const bool* flag = self.get<bool>()) {
    number = *flag ? 1 : 0;
  } else if (self.get<double>() != nullptr) {
    return self;
  }
  if (number.has_value()) return Value::Float(*number);
  return arguments[0] == nullptr ? Value::Float(0) : *arguments[0];
}

Result Abs(Context&, const Value& self, const BoundArguments&) {
  if (const double* real = self.get<double>()) {
    return Value::Float(std::abs(*real));
  }
  ASSIGN_OR_RETURN(const Value number, Apply(UnaryOperator::kPlus, self));
  return *number.get<int64_t>() < 0 ? Apply(UnaryOperator::kMinus, number)
                                    : number;
}

// Python's round(): to even from the middle, of the number as it is stored.
double RoundTo(double number, int64_t precision) {
  std::array<char, 512> digits;
  std::snprintf(digits.data(), digits.size(), "%.*f",
                static_cast<int>(precision), number);
  return std::strtod(digits.data(), nullptr);
}

Result Round(Context&, const Value& self, const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const int64_t precision, arguments.Int(0, 0));
  ASSIGN_OR_RETURN(const TextView method, arguments.String(1, U"common"));
  constexpr int64_t kMaxPrecision = 15;
  if (precision < 0 || precision > kMaxPrecision) {
    return absl::UnimplementedError(
        absl::StrCat("round() to ", precision, " digits is not supported (0..",
                     kMaxPrecision, ")"));
  }
  const bool common = Equal(method, U"common");
  const double* real = self.get<double>();
  if (real == nullptr) {
    ASSIGN_OR_RETURN(const Value number, Apply(UnaryOperator::kPlus, self));
    if (common) return number;
    return Value::Float(static_cast<double>(*number.get<int64_t>()));
  }
  if (common) return Value::Float(RoundTo(*real, precision));
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (Equal(method, U"ceil")) {
    return Value::Float(std::ceil(*real * scale) / scale);
  }
  if (Equal(method, U"floor")) {
    return Value::Float(std::floor(*real * scale) / scale);
  }
  return absl::InvalidArgumentError(
      "round() goes by 'common', 'ceil' or 'floor'");
}

// As Hugging Face defines it: json.dumps without escapes for HTML.
Result ToJsonFilter(Context& context, const Value& self,
                    const BoundArguments& arguments) {
  JsonFormat format;
  ASSIGN_OR_RETURN(format.ensure_ascii, arguments.Bool(0, false));
  ASSIGN_OR_RETURN(format.sort_keys, arguments.Bool(3, false));
  const Value* indent = arguments[1];
  if (indent != nullptr && !indent->none()) {
    if (indent->text() != nullptr) {
      format.indent = *indent->text();
    } else {
      ASSIGN_OR_RETURN(const int64_t width, arguments.Int(1, 0));
      const auto size = static_cast<size_t>(std::max<int64_t>(width, 0));
      RETURN_IF_ERROR(context.budget.Build(size));
      format.indent = Text(size, U' ');
    }
    format.item_separator = Text(1, U',');
  }
  if (arguments[2] != nullptr && !arguments[2]->none()) {
    const Sequence* pair = arguments[2]->sequence();
    if (pair == nullptr || pair->items.size() != 2 ||
        pair->items[0].text() == nullptr || pair->items[1].text() == nullptr) {
      return absl::InvalidArgumentError(
          "tojson() needs two strings as separators");
    }
    format.item_separator = *pair->items[0].text();
    format.key_separator = *pair->items[1].text();
  }
  ASSIGN_OR_RETURN(Text json, ToJson(self, format, context.budget));
  return Value::String(std::move(json));
}

// The pairs of a dict.
Result Items(Context& context, const Value& self, const BoundArguments&) {
  std::vector<Value> pairs;
  if (self.undefined()) {
    return MakeSequence({}, SequenceKind::kGenerator, context.budget);
  }
  const Builtin* method = FindMethod(self, "items");
  if (method == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("items() needs a dict, not a ", ToAbsl(self.type())));
  }
  ASSIGN_OR_RETURN(const Value view,
                   Invoke(*method, context, self, /*arguments=*/{}));
  return MakeSequence(view.sequence()->items, SequenceKind::kGenerator,
                      context.budget);
}

}  // namespace

std::span<const Builtin> ValueFilters() {
  static const std::vector<Builtin>& table = *new std::vector<Builtin>{
      {"abs", Abs},
      {"d", Default, {"default_value", "boolean"}},
      {"default", Default, {"default_value", "boolean"}},
      {"float", Float, {"default"}},
      {"int", Int, {"default", "base"}},
      {"items", Items},
      {"round", Round, {"precision", "method"}},
      {"tojson",
       ToJsonFilter,
       {"ensure_ascii", "indent", "separators", "sort_keys"}},
  };
  return table;
}

}  // namespace reprise::jinja
