// Runs the tree of a template, once.
#ifndef ENGINE_TEMPLATE_EVALUATOR_H_
#define ENGINE_TEMPLATE_EVALUATOR_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/template/builtin.h"
#include "engine/template/scope.h"
#include "engine/template/syntax.h"

namespace reprise::jinja {

struct Macro {
  const MacroOf* definition = nullptr;
  const Scope* scope = nullptr;  // that it was defined in
};

// Used once, by one thread. The errors are those of operators.h, builtin.h and
// Budget; after one, line() tells about where it was.
class Evaluator {
 public:
  explicit Evaluator(Context& context) : context_(context) {}

  // The text that the template makes of these variables.
  absl::StatusOr<Text> Run(
      const Block& block, std::vector<std::pair<std::string, Value>> variables);

  // Of what was evaluated last.
  int line() const { return line_; }

 private:
  using Result = absl::StatusOr<Value>;
  // What a statement says of those after it.
  enum class Flow { kNext, kBreak, kContinue };

  Result Evaluate(const Expression& expression, const Scope& scope);
  Result Evaluate(const Literal& node, const Scope& scope);
  Result Evaluate(const NameOf& node, const Scope& scope);
  Result Evaluate(const ListOf& node, const Scope& scope);
  Result Evaluate(const DictOf& node, const Scope& scope);
  Result Evaluate(const AttributeOf& node, const Scope& scope);
  Result Evaluate(const ItemOf& node, const Scope& scope);
  Result Evaluate(const SliceOf& node, const Scope& scope);
  Result Evaluate(const CallOf& node, const Scope& scope);
  Result Evaluate(const FilterOf& node, const Scope& scope);
  Result Evaluate(const TestOf& node, const Scope& scope);
  Result Evaluate(const Unary& node, const Scope& scope);
  Result Evaluate(const Binary& node, const Scope& scope);
  Result Evaluate(const Logic& node, const Scope& scope);
  Result Evaluate(const Comparison& node, const Scope& scope);
  Result Evaluate(const Concatenation& node, const Scope& scope);
  Result Evaluate(const Conditional& node, const Scope& scope);

  absl::StatusOr<Arguments> EvaluateAll(const ArgumentList& list,
                                        const Scope& scope);
  Result Call(const Value& callee, const Arguments& arguments);
  Result CallMacro(const Macro& macro, const Arguments& arguments);

  absl::StatusOr<Flow> Execute(const Block& block, Scope& scope, Text& out);
  absl::StatusOr<Flow> Execute(const Data& node, Scope& scope, Text& out);
  absl::StatusOr<Flow> Execute(const Print& node, Scope& scope, Text& out);
  absl::StatusOr<Flow> Execute(const If& node, Scope& scope, Text& out);
  absl::StatusOr<Flow> Execute(const For& node, Scope& scope, Text& out);
  absl::StatusOr<Flow> Execute(const Set& node, Scope& scope, Text& out);
  absl::StatusOr<Flow> Execute(const SetBlock& node, Scope& scope, Text& out);
  absl::StatusOr<Flow> Execute(const MacroOf& node, Scope& scope, Text& out);
  absl::StatusOr<Flow> Execute(const Generation& node, Scope& scope, Text& out);
  absl::StatusOr<Flow> Execute(const Break& node, Scope& scope, Text& out);
  absl::StatusOr<Flow> Execute(const Continue& node, Scope& scope, Text& out);

  absl::StatusOr<std::vector<Value>> LoopItems(const For& node,
                                               const Scope& scope);
  absl::Status Assign(const Target& target, Value value, Scope& scope);
  absl::Status Write(TextView text, Text& out);
  // A scope that lives until ReleaseScopes.
  Scope& NewScope(const Scope& outer);
  struct Mark {
    size_t scopes = 0;
    size_t macros = 0;
  };
  Mark MarkScopes() const { return {scopes_.size(), macros_.size()}; }
  // Drops the scopes made since then, unless a macro was, too: it remembers
  // where it was defined, and may be called from anywhere.
  void ReleaseScopes(const Mark& mark);

  Context& context_;
  int line_ = 1;
  std::vector<std::unique_ptr<Scope>> scopes_;
  std::vector<std::unique_ptr<Macro>> macros_;
  std::vector<std::unique_ptr<LoopState>> loops_;
};

}  // namespace reprise::jinja

#endif  // ENGINE_TEMPLATE_EVALUATOR_H_
