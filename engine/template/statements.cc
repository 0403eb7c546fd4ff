// The statements of a template; the expressions are in evaluator.cc.
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/template/evaluator.h"
#include "engine/template/format_value.h"
#include "engine/template/operators.h"

namespace reprise::jinja {

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const Block& block,
                                                   Scope& scope, Text& out) {
  const Level level(context_);
  RETURN_IF_ERROR(level.Check());
  for (const Statement& statement : block) {
    line_ = statement.line;
    RETURN_IF_ERROR(context_.budget.Steps(1));
    ASSIGN_OR_RETURN(
        const Flow flow,
        std::visit([&](const auto& node) { return Execute(node, scope, out); },
                   statement.node));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

absl::Status Evaluator::Write(TextView text, Text& out) {
  RETURN_IF_ERROR(context_.budget.Output(text.size()));
  out += text;
  return absl::OkStatus();
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const Data& node, Scope&,
                                                   Text& out) {
  RETURN_IF_ERROR(Write(node.text, out));
  return Flow::kNext;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const Print& node,
                                                   Scope& scope, Text& out) {
  ASSIGN_OR_RETURN(const Value value, Evaluate(*node.value, scope));
  if (const Text* text = value.text()) {
    RETURN_IF_ERROR(Write(*text, out));
    return Flow::kNext;
  }
  ASSIGN_OR_RETURN(const Text text, ToText(value, context_.budget));
  RETURN_IF_ERROR(Write(text, out));
  return Flow::kNext;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const If& node, Scope& scope,
                                                   Text& out) {
  for (const auto& [condition, body] : node.branches) {
    ASSIGN_OR_RETURN(const Value holds, Evaluate(*condition, scope));
    if (holds.truthy()) return Execute(body, scope, out);
  }
  return Execute(node.otherwise, scope, out);
}

// What the loop goes through: the items for which the condition holds.
absl::StatusOr<std::vector<Value>> Evaluator::LoopItems(const For& node,
                                                        const Scope& scope) {
  ASSIGN_OR_RETURN(const Value all, Evaluate(*node.items, scope));
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(all, context_.budget));
  if (node.condition == nullptr) return items;
  std::vector<Value> chosen;
  for (Value& item : items) {
    const Mark mark = MarkScopes();
    Scope& inner = NewScope(scope);
    RETURN_IF_ERROR(Assign(node.target, item, inner));
    ASSIGN_OR_RETURN(const Value holds, Evaluate(*node.condition, inner));
    ReleaseScopes(mark);
    if (holds.truthy()) chosen.push_back(std::move(item));
  }
  return chosen;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const For& node,
                                                   Scope& scope, Text& out) {
  ASSIGN_OR_RETURN(std::vector<Value> items, LoopItems(node, scope));
  if (items.empty()) {
    return Execute(node.otherwise, NewScope(scope), out);
  }
  const size_t count = items.size();
  auto loop = std::make_unique<LoopState>();
  ASSIGN_OR_RETURN(
      loop->items,
      MakeSequence(std::move(items), SequenceKind::kList, context_.budget));
  LoopState& state = *loop;
  loops_.push_back(std::move(loop));
  for (; state.index < count; ++state.index) {
    const Mark mark = MarkScopes();
    Scope& inner = NewScope(scope);
    inner.Set("loop", Value(Value::Any(&state)));
    RETURN_IF_ERROR(
        Assign(node.target, state.items.sequence()->items[state.index], inner));
    ASSIGN_OR_RETURN(const Flow flow, Execute(node.body, inner, out));
    ReleaseScopes(mark);
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

absl::Status Evaluator::Assign(const Target& target, Value value,
                               Scope& scope) {
  if (!target.parts.empty()) {
    RETURN_IF_ERROR(CheckDefined(value));
    ASSIGN_OR_RETURN(std::vector<Value> parts, Iterate(value, context_.budget));
    if (parts.size() != target.parts.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          parts.size(), " values for ", target.parts.size(), " names"));
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      RETURN_IF_ERROR(Assign(target.parts[i], std::move(parts[i]), scope));
    }
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(context_.budget.Search(scope.size()));
  if (target.attribute.empty()) {
    scope.Set(target.name, std::move(value));
    return absl::OkStatus();
  }
  const Value* object = scope.Find(target.name);
  auto* space = object == nullptr ? nullptr : object->get<Namespace*>();
  if (space == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", target.name, "' is no namespace"));
  }
  RETURN_IF_ERROR(context_.budget.Search((*space)->attributes.size()));
  for (auto& [name, old] : (*space)->attributes) {
    if (name != target.attribute) continue;
    old = std::move(value);
    return absl::OkStatus();
  }
  (*space)->attributes.emplace_back(target.attribute, std::move(value));
  return absl::OkStatus();
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const Set& node,
                                                   Scope& scope, Text&) {
  ASSIGN_OR_RETURN(Value value, Evaluate(*node.value, scope));
  RETURN_IF_ERROR(Assign(node.target, std::move(value), scope));
  return Flow::kNext;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const SetBlock& node,
                                                   Scope& scope, Text&) {
  Text text;
  RETURN_IF_ERROR(Execute(node.body, NewScope(scope), text).status());
  Value value = Value::String(std::move(text));
  for (const ExpressionPtr& expression : node.filters) {
    const auto& filter = std::get<FilterOf>(expression->node);
    ASSIGN_OR_RETURN(const Arguments arguments,
                     EvaluateAll(filter.arguments, scope));
    ASSIGN_OR_RETURN(value, Invoke(*filter.filter, context_, value, arguments));
  }
  RETURN_IF_ERROR(Assign(node.target, std::move(value), scope));
  return Flow::kNext;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const MacroOf& node,
                                                   Scope& scope, Text&) {
  // It keeps the scopes around it.
  constexpr size_t kElements = 64;
  RETURN_IF_ERROR(context_.budget.BuildElements(kElements));
  RETURN_IF_ERROR(context_.budget.Search(scope.size()));
  macros_.push_back(std::make_unique<Macro>(Macro{&node, &scope}));
  scope.Set(node.name,
            Value(Value::Any(static_cast<const Macro*>(macros_.back().get()))));
  return Flow::kNext;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const Generation& node,
                                                   Scope& scope, Text& out) {
  RETURN_IF_ERROR(Execute(node.body, NewScope(scope), out).status());
  return Flow::kNext;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const Break&, Scope&,
                                                   Text&) {
  return Flow::kBreak;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const Continue&, Scope&,
                                                   Text&) {
  return Flow::kContinue;
}

}  // namespace reprise::jinja
