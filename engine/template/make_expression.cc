#include "engine/template/make_expression.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/template/lexer.h"

namespace reprise::jinja {

int DepthOf(const ExpressionPtr& expression) {
  return expression == nullptr ? 0 : expression->depth;
}

int DepthOf(const std::vector<ExpressionPtr>& expressions) {
  int depth = 0;
  for (const ExpressionPtr& e : expressions) depth = std::max(depth, e->depth);
  return depth;
}

int DepthOf(const ArgumentList& arguments) {
  int depth = DepthOf(arguments.positional);
  for (const auto& [name, e] : arguments.named) {
    depth = std::max(depth, e->depth);
  }
  return depth;
}

absl::Status TooDeep(int line) {
  return ErrorAt(
      line, absl::StatusCode::kInvalidArgument,
      absl::StrCat("nested deeper than ", kMaxSyntaxDepth, " levels"));
}

absl::StatusOr<ExpressionPtr> Make(int line, int depth,
                                   decltype(Expression::node) node) {
  if (depth + 1 > kMaxSyntaxDepth) return TooDeep(line);
  auto expression = std::make_unique<Expression>();
  expression->node = std::move(node);
  expression->line = line;
  expression->depth = depth + 1;
  return expression;
}

}  // namespace reprise::jinja
