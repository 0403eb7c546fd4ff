#include "engine/template/evaluator.h"

#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/template/format_value.h"
#include "engine/template/operators.h"

namespace reprise::jinja {

using Result = absl::StatusOr<Value>;

// ---- Expressions ------------------------------------------------------------

Result Evaluator::Evaluate(const Expression& expression, const Scope& scope) {
  line_ = expression.line;
  RETURN_IF_ERROR(context_.budget.Steps(1));
  const Level level(context_);
  RETURN_IF_ERROR(level.Check());
  return std::visit([&](const auto& node) { return Evaluate(node, scope); },
                    expression.node);
}

Result Evaluator::Evaluate(const Literal& node, const Scope&) {
  return node.value;
}

Result Evaluator::Evaluate(const NameOf& node, const Scope& scope) {
  RETURN_IF_ERROR(context_.budget.Search(scope.size()));
  if (const Value* value = scope.Find(node.name)) return *value;
  if (const Builtin* function = FindFunction(node.name)) {
    return Value(Value::Any(function));
  }
  // Globals of Jinja's, which a template may ask for.
  for (const char* name : {"cycler", "joiner", "lipsum", "self"}) {
    if (node.name != name) continue;
    return absl::UnimplementedError(
        absl::StrCat("'", node.name, "' is not supported"));
  }
  return Value::Missing(absl::StrCat("'", node.name, "' is undefined"));
}

Result Evaluator::Evaluate(const ListOf& node, const Scope& scope) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const ExpressionPtr& item : node.items) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*item, scope));
    items.push_back(std::move(value));
  }
  return MakeSequence(std::move(items), node.kind, context_.budget);
}

Result Evaluator::Evaluate(const DictOf& node, const Scope& scope) {
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [key, value] : node.entries) {
    ASSIGN_OR_RETURN(Value name, Evaluate(*key, scope));
    ASSIGN_OR_RETURN(Value entry, Evaluate(*value, scope));
    entries.emplace_back(std::move(name), std::move(entry));
  }
  return MakeDict(std::move(entries), context_.budget);
}

Result Evaluator::Evaluate(const AttributeOf& node, const Scope& scope) {
  ASSIGN_OR_RETURN(const Value object, Evaluate(*node.object, scope));
  return GetAttribute(object, node.name, context_.budget);
}

Result Evaluator::Evaluate(const ItemOf& node, const Scope& scope) {
  ASSIGN_OR_RETURN(const Value object, Evaluate(*node.object, scope));
  ASSIGN_OR_RETURN(const Value key, Evaluate(*node.key, scope));
  return GetItem(object, key, context_.budget);
}

Result Evaluator::Evaluate(const SliceOf& node, const Scope& scope) {
  ASSIGN_OR_RETURN(const Value object, Evaluate(*node.object, scope));
  std::vector<Value> places;
  for (const ExpressionPtr* part : {&node.start, &node.stop, &node.step}) {
    Value place;
    if (*part != nullptr) {
      ASSIGN_OR_RETURN(place, Evaluate(**part, scope));
    }
    places.push_back(std::move(place));
  }
  return GetSlice(object, places[0], places[1], places[2], context_.budget);
}

absl::StatusOr<Arguments> Evaluator::EvaluateAll(const ArgumentList& list,
                                                 const Scope& scope) {
  Arguments arguments;
  for (const ExpressionPtr& expression : list.positional) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*expression, scope));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, expression] : list.named) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*expression, scope));
    arguments.named.emplace_back(name, std::move(value));
  }
  return arguments;
}

Result Evaluator::Evaluate(const CallOf& node, const Scope& scope) {
  ASSIGN_OR_RETURN(const Value callee, Evaluate(*node.callee, scope));
  ASSIGN_OR_RETURN(const Arguments arguments,
                   EvaluateAll(node.arguments, scope));
  line_ = node.callee->line;
  return Call(callee, arguments);
}

Result Evaluator::Evaluate(const FilterOf& node, const Scope& scope) {
  ASSIGN_OR_RETURN(const Value input, Evaluate(*node.input, scope));
  ASSIGN_OR_RETURN(const Arguments arguments,
                   EvaluateAll(node.arguments, scope));
  return Invoke(*node.filter, context_, input, arguments);
}

Result Evaluator::Evaluate(const TestOf& node, const Scope& scope) {
  ASSIGN_OR_RETURN(const Value input, Evaluate(*node.input, scope));
  ASSIGN_OR_RETURN(const Arguments arguments,
                   EvaluateAll(node.arguments, scope));
  ASSIGN_OR_RETURN(const Value holds,
                   Invoke(*node.test, context_, input, arguments));
  return Value::Bool(holds.truthy() != node.negated);
}

Result Evaluator::Evaluate(const Unary& node, const Scope& scope) {
  ASSIGN_OR_RETURN(const Value operand, Evaluate(*node.operand, scope));
  return Apply(node.op, operand);
}

Result Evaluator::Evaluate(const Binary& node, const Scope& scope) {
  ASSIGN_OR_RETURN(const Value left, Evaluate(*node.left, scope));
  ASSIGN_OR_RETURN(const Value right, Evaluate(*node.right, scope));
  return Apply(node.op, left, right, context_.budget);
}

// As in Python, the value is that of the part that decided.
Result Evaluator::Evaluate(const Logic& node, const Scope& scope) {
  ASSIGN_OR_RETURN(Value left, Evaluate(*node.left, scope));
  if (left.truthy() != node.is_and) return left;
  return Evaluate(*node.right, scope);
}

Result Evaluator::Evaluate(const Comparison& node, const Scope& scope) {
  ASSIGN_OR_RETURN(Value left, Evaluate(*node.first, scope));
  for (const auto& [op, expression] : node.others) {
    ASSIGN_OR_RETURN(Value right, Evaluate(*expression, scope));
    ASSIGN_OR_RETURN(const bool holds,
                     Compares(op, left, right, context_.budget));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Result Evaluator::Evaluate(const Concatenation& node, const Scope& scope) {
  Text text;
  for (const ExpressionPtr& part : node.parts) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*part, scope));
    ASSIGN_OR_RETURN(const Text printed, ToText(value, context_.budget));
    RETURN_IF_ERROR(context_.budget.Build(printed.size()));
    text += printed;
  }
  return Value::String(std::move(text));
}

Result Evaluator::Evaluate(const Conditional& node, const Scope& scope) {
  ASSIGN_OR_RETURN(const Value condition, Evaluate(*node.condition, scope));
  if (condition.truthy()) return Evaluate(*node.then, scope);
  if (node.otherwise != nullptr) return Evaluate(*node.otherwise, scope);
  return Value::Missing("an 'if' without 'else' was false and has no value");
}

// ---- Calls ------------------------------------------------------------------

Result Evaluator::Call(const Value& callee, const Arguments& arguments) {
  RETURN_IF_ERROR(CheckDefined(callee));
  if (const auto* function = callee.get<const Builtin*>()) {
    return Invoke(**function, context_, /*self=*/Value(), arguments);
  }
  if (const auto* method = callee.get<Value::MethodRef>()) {
    const Value& self = (*method)->self;
    return Invoke(*FindMethod(self, (*method)->name), context_, self,
                  arguments);
  }
  if (const auto* macro = callee.get<const Macro*>()) {
    return CallMacro(**macro, arguments);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a ", ToAbsl(callee.type()), " cannot be called"));
}

Result Evaluator::CallMacro(const Macro& macro, const Arguments& arguments) {
  const MacroOf& definition = *macro.definition;
  const auto& parameters = definition.parameters;
  const auto fail = [&definition](auto... parts) {
    return absl::InvalidArgumentError(
        absl::StrCat("the macro '", definition.name, "' ", parts...));
  };
  if (arguments.positional.size() > parameters.size()) {
    return fail("takes at most ", parameters.size(), " arguments");
  }
  RETURN_IF_ERROR(context_.budget.Search(
      parameters.size() * (parameters.size() + arguments.named.size())));
  const Mark mark = MarkScopes();
  Scope& scope = NewScope(*macro.scope);
  std::vector<bool> given(parameters.size(), false);
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    scope.Set(parameters[i].name, arguments.positional[i]);
    given[i] = true;
  }
  for (const auto& argument : arguments.named) {
    const auto& name = argument.first;
    const auto it = std::find_if(
        parameters.begin(), parameters.end(),
        [&name](const auto& parameter) { return parameter.name == name; });
    if (it == parameters.end()) return fail("has no argument '", name, "'");
    const auto place = static_cast<size_t>(it - parameters.begin());
    if (given[place]) return fail("got '", name, "' twice");
    scope.Set(name, argument.second);
    given[place] = true;
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (given[i]) continue;
    Value value = Value::Missing(absl::StrCat(
        "the parameter '", parameters[i].name, "' was not provided"));
    if (parameters[i].otherwise != nullptr) {
      ASSIGN_OR_RETURN(value, Evaluate(*parameters[i].otherwise, scope));
    }
    scope.Set(parameters[i].name, std::move(value));
  }
  Text out;
  RETURN_IF_ERROR(Execute(definition.body, scope, out).status());
  ReleaseScopes(mark);
  return Value::String(std::move(out));
}

Scope& Evaluator::NewScope(const Scope& outer) {
  scopes_.push_back(std::make_unique<Scope>(&outer));
  return *scopes_.back();
}

void Evaluator::ReleaseScopes(const Mark& mark) {
  if (macros_.size() == mark.macros) scopes_.resize(mark.scopes);
}

absl::StatusOr<Text> Evaluator::Run(
    const Block& block, std::vector<std::pair<std::string, Value>> variables) {
  const Scope nothing(nullptr);
  Scope& scope = NewScope(nothing);
  for (auto& [name, value] : variables) scope.Set(name, std::move(value));
  Text out;
  RETURN_IF_ERROR(Execute(block, scope, out).status());
  return out;
}

}  // namespace reprise::jinja
