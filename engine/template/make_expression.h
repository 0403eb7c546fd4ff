// Makes nodes of expressions and watches how deep they get, for the parsers.
#ifndef ENGINE_TEMPLATE_MAKE_EXPRESSION_H_
#define ENGINE_TEMPLATE_MAKE_EXPRESSION_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/template/expression.h"

namespace reprise::jinja {

// Levels of a part of an expression; 0 if there is none.
int DepthOf(const ExpressionPtr& expression);
int DepthOf(const std::vector<ExpressionPtr>& expressions);
int DepthOf(const ArgumentList& arguments);

// InvalidArgument, with the line: nested deeper than kMaxSyntaxDepth.
absl::Status TooDeep(int line);

// The expression, or TooDeep. `depth` is that of its deepest part.
absl::StatusOr<ExpressionPtr> Make(int line, int depth,
                                   decltype(Expression::node) node);

// Counts a level of recursion while it lives.
class Nesting {
 public:
  explicit Nesting(int& nesting) : nesting_(nesting) { ++nesting_; }
  ~Nesting() { --nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  bool too_deep() const { return nesting_ > kMaxSyntaxDepth; }

 private:
  int& nesting_;
};

}  // namespace reprise::jinja

#endif  // ENGINE_TEMPLATE_MAKE_EXPRESSION_H_
