// Reads expressions, with Jinja's precedences (jinja2/parser.py of 3.1).
#ifndef ENGINE_TEMPLATE_EXPRESSION_PARSER_H_
#define ENGINE_TEMPLATE_EXPRESSION_PARSER_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/template/expression.h"
#include "engine/template/token_stream.h"

namespace reprise::jinja {

// Works on the tokens of one template. All errors have the line:
// InvalidArgument for what is no expression or nested too deep, Unimplemented
// for what Jinja has and this has not.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  // One expression, with or without `a if b else c`.
  absl::StatusOr<ExpressionPtr> Parse();
  absl::StatusOr<ExpressionPtr> ParseWithoutCondition();
  // The same, or several with commas between them: a tuple. Ends before a name
  // that equals `end`.
  absl::StatusOr<ExpressionPtr> ParseTuple(bool with_condition,
                                           std::string_view end = "");
  // What stands after "|", with an input of null.
  absl::StatusOr<ExpressionPtr> ParseBareFilter();

 private:
  using Result = absl::StatusOr<ExpressionPtr>;

  Result ParseOr();
  Result ParseAnd();
  Result ParseNot();
  Result ParseComparison();
  Result ParseSum();
  Result ParseConcatenation();
  Result ParseProduct();
  Result ParsePower();
  Result ParseUnary(bool with_filters);
  Result ParsePrimary();
  Result ParseNumber();
  Result ParseParentheses();
  Result ParseList();
  Result ParseDict();
  Result ParsePostfix(ExpressionPtr object);
  Result ParseFiltersAndTests(ExpressionPtr input);
  Result ParseDot(ExpressionPtr object);
  Result ParseBrackets(ExpressionPtr object);
  Result ParseCall(ExpressionPtr callee);
  Result ParseFilter(ExpressionPtr input);
  Result ParseTest(ExpressionPtr input);
  absl::StatusOr<ArgumentList> ParseArguments();
  bool StartsTestArgument() const;
  bool EndsTuple(std::string_view end) const;

  TokenStream& tokens_;
  int nesting_ = 0;  // of brackets and prefixes
};

}  // namespace reprise::jinja

#endif  // ENGINE_TEMPLATE_EXPRESSION_PARSER_H_
