// What operators do, as in Python.
#ifndef ENGINE_TEMPLATE_OPERATORS_H_
#define ENGINE_TEMPLATE_OPERATORS_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/template/budget.h"
#include "engine/template/expression.h"
#include "engine/template/value.h"

namespace reprise::jinja {

// InvalidArgument for types that the operator does not take, for what is
// undefined, for a division by zero and for integers of more than 64 bits.
absl::StatusOr<Value> Apply(BinaryOperator op, const Value& left,
                            const Value& right, Budget& budget);
absl::StatusOr<Value> Apply(UnaryOperator op, const Value& operand);
absl::StatusOr<bool> Compares(CompareOperator op, const Value& left,
                              const Value& right, Budget& budget);

// Whether `container` has `item`; both may be strings.
absl::StatusOr<bool> Contains(const Value& container, const Value& item,
                              Budget& budget);

// object.name: a method or attribute, else the item of that name; undefined if
// there is neither, or Jinja's sandbox keeps it from templates. InvalidArgument
// if the object is undefined; Unimplemented for methods that only Python has.
absl::StatusOr<Value> GetAttribute(const Value& object, const std::string& name,
                                   Budget& budget);
// object[key]: the item, else the attribute of that name.
absl::StatusOr<Value> GetItem(const Value& object, const Value& key,
                              Budget& budget);
// object[start:stop:step]. InvalidArgument for what has no slices.
absl::StatusOr<Value> GetSlice(const Value& object, const Value& start,
                               const Value& stop, const Value& step,
                               Budget& budget);

// The error of using `value`, which is undefined; OK if it is not.
absl::Status CheckDefined(const Value& value);

}  // namespace reprise::jinja

#endif  // ENGINE_TEMPLATE_OPERATORS_H_
