// Tests: what may stand after "is".
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status_macros.h"
#include "engine/template/builtin.h"
#include "engine/template/format_value.h"
#include "engine/template/operators.h"

namespace reprise::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// A test that only looks at the value.
template <bool (*Holds)(const Value&)>
Result Is(Context&, const Value& self, const BoundArguments&) {
  return Value::Bool(Holds(self));
}

bool Defined(const Value& v) { return !v.undefined(); }
bool NotDefined(const Value& v) { return v.undefined(); }
bool IsNone(const Value& v) { return v.none(); }
bool Boolean(const Value& v) { return v.get<bool>() != nullptr; }
bool True(const Value& v) { return Boolean(v) && *v.get<bool>(); }
bool False(const Value& v) { return Boolean(v) && !*v.get<bool>(); }
bool Integer(const Value& v) { return v.get<int64_t>() != nullptr; }
bool Real(const Value& v) { return v.get<double>() != nullptr; }
bool Number(const Value& v) { return Integer(v) || Real(v) || Boolean(v); }
bool String(const Value& v) { return v.text() != nullptr; }
bool Mapping(const Value& v) { return v.dict() != nullptr; }
// As Jinja has it: what has a length and items, dicts and undefined included.
bool IsSequence(const Value& v) {
  return String(v) || Mapping(v) || v.undefined() ||
         (v.sequence() != nullptr &&
          v.sequence()->kind != SequenceKind::kGenerator &&
          v.sequence()->kind != SequenceKind::kView);
}
bool Iterable(const Value& v) {
  return String(v) || Mapping(v) || v.undefined() || v.sequence() != nullptr;
}
bool Callable(const Value& v) {
  return v.get<const Macro*>() != nullptr ||
         v.get<const Builtin*>() != nullptr ||
         v.get<Value::MethodRef>() != nullptr || v.undefined();
}
// Whether all letters of the printed value that have a case have this one, and
// there is one.
template <bool (*Wanted)(char32_t), bool (*Other)(char32_t)>
Result AllOfCase(Context& context, const Value& self, const BoundArguments&) {
  ASSIGN_OR_RETURN(const Text text, ToText(self, context.budget));
  return Value::Bool(std::any_of(text.begin(), text.end(), Wanted) &&
                     std::none_of(text.begin(), text.end(), Other));
}

template <CompareOperator kOperator>
Result Compare(Context& context, const Value& self,
               const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const bool holds,
                   Compares(kOperator, self, *arguments[0], context.budget));
  return Value::Bool(holds);
}

Result SameAs(Context&, const Value& self, const BoundArguments& arguments) {
  const Value& other = *arguments[0];
  if (self.none() || Boolean(self)) {
    return Value::Bool(self.any().index() == other.any().index() &&
                       self.truthy() == other.truthy());
  }
  return absl::UnimplementedError(
      "'sameas' is only supported for none, true and false");
}

Result DivisibleBy(Context& context, const Value& self,
                   const BoundArguments& arguments) {
  ASSIGN_OR_RETURN(const Value rest, Apply(BinaryOperator::kModulo, self,
                                           *arguments[0], context.budget));
  return Value::Bool(!rest.truthy());
}

template <int64_t kRest>
Result Parity(Context& context, const Value& self, const BoundArguments&) {
  ASSIGN_OR_RETURN(const Value rest, Apply(BinaryOperator::kModulo, self,
                                           Value::Int(2), context.budget));
  ASSIGN_OR_RETURN(const bool equal,
                   Equals(rest, Value::Int(kRest), context.budget));
  return Value::Bool(equal);
}

}  // namespace

std::span<const Builtin> Tests() {
  using Op = CompareOperator;
  static const std::vector<Builtin>& table = *new std::vector<Builtin>{
      {"boolean", Is<Boolean>},
      {"callable", Is<Callable>},
      {"defined", Is<Defined>},
      {"divisibleby", DivisibleBy, {"num"}, 1},
      {"eq", Compare<Op::kEqual>, {"other"}, 1},
      {"equalto", Compare<Op::kEqual>, {"other"}, 1},
      {"even", Parity<0>},
      {"false", Is<False>},
      {"float", Is<Real>},
      {"ge", Compare<Op::kGreaterOrEqual>, {"other"}, 1},
      {"greaterthan", Compare<Op::kGreater>, {"other"}, 1},
      {"gt", Compare<Op::kGreater>, {"other"}, 1},
      {"in", Compare<Op::kIn>, {"seq"}, 1},
      {"integer", Is<Integer>},
      {"iterable", Is<Iterable>},
      {"le", Compare<Op::kLessOrEqual>, {"other"}, 1},
      {"lessthan", Compare<Op::kLess>, {"other"}, 1},
      {"lower", AllOfCase<IsLower, IsUpper>},
      {"lt", Compare<Op::kLess>, {"other"}, 1},
      {"mapping", Is<Mapping>},
      {"ne", Compare<Op::kNotEqual>, {"other"}, 1},
      {"none", Is<IsNone>},
      {"number", Is<Number>},
      {"odd", Parity<1>},
      {"sameas", SameAs, {"other"}, 1},
      {"sequence", Is<IsSequence>},
      {"string", Is<String>},
      {"true", Is<True>},
      {"undefined", Is<NotDefined>},
      {"upper", AllOfCase<IsUpper, IsLower>},
  };
  return table;
}

}  // namespace reprise::jinja
