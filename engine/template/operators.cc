#include "engine/template/operators.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"

namespace reprise::jinja {
namespace {

std::string_view Sign(BinaryOperator op) {
  switch (op) {
    case BinaryOperator::kAdd:
      return "+";
    case BinaryOperator::kSubtract:
      return "-";
    case BinaryOperator::kMultiply:
      return "*";
    case BinaryOperator::kDivide:
      return "/";
    case BinaryOperator::kFloorDivide:
      return "//";
    case BinaryOperator::kModulo:
      return "%";
    case BinaryOperator::kPower:
      return "**";
  }
  return "";
}

absl::Status Mismatch(std::string_view op, const Value& a, const Value& b) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", ToAbsl(op), "' does not take a ", ToAbsl(a.type()),
                   " and a ", ToAbsl(b.type())));
}

absl::Status DivisionByZero() {
  return absl::InvalidArgumentError("division by zero");
}

std::optional<int64_t> IntOf(const Value& value) {
  if (const bool* flag = value.get<bool>()) return *flag ? 1 : 0;
  if (const int64_t* number = value.get<int64_t>()) return *number;
  return std::nullopt;
}

std::optional<double> NumberOf(const Value& value) {
  if (const double* real = value.get<double>()) return *real;
  if (const auto number = IntOf(value)) return static_cast<double>(*number);
  return std::nullopt;
}

// The result, or nothing if it does not fit 64 bits.
std::optional<int64_t> Power(int64_t base, int64_t exponent) {
  int64_t power = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(power, base, &power)) {
      return std::nullopt;
    }
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
      return std::nullopt;
    }
  }
  return power;
}

absl::StatusOr<Value> ApplyToInts(BinaryOperator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOperator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case BinaryOperator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case BinaryOperator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case BinaryOperator::kDivide:
      if (b == 0) return DivisionByZero();
      return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOperator::kFloorDivide:
    case BinaryOperator::kModulo: {
      if (b == 0) return DivisionByZero();
      overflow = a == std::numeric_limits<int64_t>::min() && b == -1;
      if (overflow) break;
      // Towards minus infinity, where C goes towards zero.
      const bool round = a % b != 0 && (a < 0) != (b < 0);
      result = op == BinaryOperator::kModulo ? a % b + (round ? b : 0)
                                             : a / b - (round ? 1 : 0);
      break;
    }
    case BinaryOperator::kPower: {
      if (b < 0) {
        if (a == 0) return DivisionByZero();
        return Value::Float(
            std::pow(static_cast<double>(a), static_cast<double>(b)));
      }
      const std::optional<int64_t> power = Power(a, b);
      overflow = !power.has_value();
      result = power.value_or(0);
      break;
    }
  }
  if (!overflow) return Value::Int(result);
  return absl::InvalidArgumentError(
      absl::StrCat(a, " ", ToAbsl(Sign(op)), " ", b, " has more than 64 bits"));
}

absl::StatusOr<Value> ApplyToDoubles(BinaryOperator op, double a, double b) {
  switch (op) {
    case BinaryOperator::kAdd:
      return Value::Float(a + b);
    case BinaryOperator::kSubtract:
      return Value::Float(a - b);
    case BinaryOperator::kMultiply:
      return Value::Float(a * b);
    case BinaryOperator::kPower:
      return Value::Float(std::pow(a, b));
    default:
      break;
  }
  if (b == 0) return DivisionByZero();
  if (op == BinaryOperator::kDivide) return Value::Float(a / b);
  // As Python's float_divmod.
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) {
    rest += b;
    quotient -= 1;
  }
  if (op == BinaryOperator::kModulo) {
    return Value::Float(rest == 0 ? std::copysign(0.0, b) : rest);
  }
  double whole = std::floor(quotient);
  if (quotient - whole > 0.5) whole += 1;
  return Value::Float(quotient == 0 ? std::copysign(0.0, a / b) : whole);
}

absl::StatusOr<Value> Join(const Sequence& a, const Sequence& b,
                           Budget& budget) {
  RETURN_IF_ERROR(budget.Steps(a.items.size() + b.items.size()));
  std::vector<Value> items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return MakeSequence(std::move(items), a.kind, budget);
}

bool IsListOrTuple(const Sequence* list) {
  return list != nullptr && (list->kind == SequenceKind::kList ||
                             list->kind == SequenceKind::kTuple);
}

// A text or list, `count` times.
absl::StatusOr<Value> Repeat(const Value& value, int64_t count,
                             Budget& budget) {
  const auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  if (const Text* text = value.text()) {
    // Saturates where the product would not fit.
    const size_t size = text->size();
    const size_t most = std::numeric_limits<int64_t>::max();
    RETURN_IF_ERROR(
        budget.Build(size > 0 && times > most / size ? most : size * times));
    Text repeated;
    repeated.reserve(size * times);
    for (size_t i = 0; i < times && size > 0; ++i) repeated += *text;
    return Value::String(std::move(repeated));
  }
  const Sequence& list = *value.sequence();
  const size_t size = list.items.size();
  const size_t most = std::numeric_limits<int64_t>::max();
  RETURN_IF_ERROR(
      budget.Steps(size > 0 && times > most / size ? most : size * times));
  std::vector<Value> items;
  for (size_t i = 0; i < times && size > 0; ++i) {
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return MakeSequence(std::move(items), list.kind, budget);
}

absl::StatusOr<Value> ApplyToParts(BinaryOperator op, const Value& left,
                                   const Value& right, Budget& budget) {
  const auto repeatable = [](const Value& value) {
    return value.text() != nullptr || IsListOrTuple(value.sequence());
  };
  if (op == BinaryOperator::kMultiply) {
    if (repeatable(left) && IntOf(right)) {
      return Repeat(left, *IntOf(right), budget);
    }
    if (repeatable(right) && IntOf(left)) {
      return Repeat(right, *IntOf(left), budget);
    }
  }
  if (op == BinaryOperator::kModulo && left.text() != nullptr) {
    return absl::UnimplementedError("'%' to format a str is not supported");
  }
  if (op != BinaryOperator::kAdd) return Mismatch(Sign(op), left, right);
  if (left.text() != nullptr && right.text() != nullptr) {
    RETURN_IF_ERROR(budget.Build(left.text()->size() + right.text()->size()));
    return Value::String(*left.text() + *right.text());
  }
  const Sequence* a = left.sequence();
  const Sequence* b = right.sequence();
  if (IsListOrTuple(a) && IsListOrTuple(b) && a->kind == b->kind) {
    return Join(*a, *b, budget);
  }
  return Mismatch("+", left, right);
}

}  // namespace

absl::Status CheckDefined(const Value& value) {
  const auto* undefined = value.get<Undefined>();
  return undefined == nullptr ? absl::OkStatus()
                              : absl::InvalidArgumentError(*undefined->reason);
}

absl::StatusOr<Value> Apply(BinaryOperator op, const Value& left,
                            const Value& right, Budget& budget) {
  RETURN_IF_ERROR(CheckDefined(left));
  RETURN_IF_ERROR(CheckDefined(right));
  const std::optional<int64_t> a = IntOf(left);
  const std::optional<int64_t> b = IntOf(right);
  if (a.has_value() && b.has_value()) return ApplyToInts(op, *a, *b);
  const std::optional<double> x = NumberOf(left);
  const std::optional<double> y = NumberOf(right);
  if (x.has_value() && y.has_value()) return ApplyToDoubles(op, *x, *y);
  return ApplyToParts(op, left, right, budget);
}

absl::StatusOr<Value> Apply(UnaryOperator op, const Value& operand) {
  if (op == UnaryOperator::kNot) return Value::Bool(!operand.truthy());
  RETURN_IF_ERROR(CheckDefined(operand));
  const bool minus = op == UnaryOperator::kMinus;
  if (const double* real = operand.get<double>()) {
    return Value::Float(minus ? -*real : *real);
  }
  const std::optional<int64_t> number = IntOf(operand);
  if (!number.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", minus ? "-" : "+", "' does not take a ", ToAbsl(operand.type())));
  }
  if (minus) return ApplyToInts(BinaryOperator::kSubtract, 0, *number);
  return Value::Int(*number);
}

absl::StatusOr<bool> Contains(const Value& container, const Value& item,
                              Budget& budget) {
  if (const Text* text = container.text()) {
    RETURN_IF_ERROR(CheckDefined(item));
    const Text* what = item.text();
    if (what == nullptr) return Mismatch("in", item, container);
    RETURN_IF_ERROR(budget.Scan(text->size() + what->size()));
    return what->empty() || Finder(*what).Next(*text, 0) != Text::npos;
  }
  if (const Dict* dict = container.dict()) {
    if (item.sequence() != nullptr || item.dict() != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("a ", ToAbsl(item.type()), " is never a key"));
    }
    for (const auto& [key, value] : dict->entries) {
      ASSIGN_OR_RETURN(const bool equal, Equals(key, item, budget));
      if (equal) return true;
    }
    return false;
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(container, budget));
  for (const Value& other : items) {
    ASSIGN_OR_RETURN(const bool equal, Equals(other, item, budget));
    if (equal) return true;
  }
  return false;
}

absl::StatusOr<bool> Compares(CompareOperator op, const Value& left,
                              const Value& right, Budget& budget) {
  switch (op) {
    case CompareOperator::kEqual:
      return Equals(left, right, budget);
    case CompareOperator::kNotEqual: {
      ASSIGN_OR_RETURN(const bool equal, Equals(left, right, budget));
      return !equal;
    }
    case CompareOperator::kIn:
      return Contains(right, left, budget);
    case CompareOperator::kNotIn: {
      ASSIGN_OR_RETURN(const bool inside, Contains(right, left, budget));
      return !inside;
    }
    default:
      break;
  }
  ASSIGN_OR_RETURN(const int order, Order(left, right, budget));
  switch (op) {
    case CompareOperator::kLess:
      return order < 0;
    case CompareOperator::kLessOrEqual:
      return order <= 0;
    case CompareOperator::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

}  // namespace reprise::jinja
