// Expressions: what may follow a value, from attributes to tests.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status_macros.h"
#include "engine/model/json_text.h"
#include "engine/template/expression_parser.h"
#include "engine/template/make_expression.h"

namespace reprise::jinja {
namespace {

using Kind = Token::Kind;

}  // namespace

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePostfix(
    ExpressionPtr object) {
  while (true) {
    if (tokens_.IsOperator(".")) {
      ASSIGN_OR_RETURN(object, ParseDot(std::move(object)));
    } else if (tokens_.IsOperator("[")) {
      ASSIGN_OR_RETURN(object, ParseBrackets(std::move(object)));
    } else if (tokens_.IsOperator("(")) {
      ASSIGN_OR_RETURN(object, ParseCall(std::move(object)));
    } else {
      return object;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFiltersAndTests(
    ExpressionPtr input) {
  while (true) {
    if (tokens_.SkipOperator("|")) {
      ASSIGN_OR_RETURN(input, ParseFilter(std::move(input)));
    } else if (tokens_.IsName("is")) {
      ASSIGN_OR_RETURN(input, ParseTest(std::move(input)));
    } else if (tokens_.IsOperator("(")) {
      ASSIGN_OR_RETURN(input, ParseCall(std::move(input)));
    } else {
      return input;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseDot(ExpressionPtr object) {
  const int line = tokens_.Next().line;
  const int depth = DepthOf(object);
  if (tokens_.Is(Kind::kInteger)) {
    ASSIGN_OR_RETURN(ExpressionPtr key, ParseNumber());
    return Make(line, depth, ItemOf{std::move(object), std::move(key)});
  }
  const std::string name = tokens_.Peek().text;
  RETURN_IF_ERROR(tokens_.Expect(Kind::kName, "a name or number after '.'"));
  return Make(line, depth, AttributeOf{std::move(object), name});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseBrackets(
    ExpressionPtr object) {
  const int line = tokens_.Next().line;
  std::array<ExpressionPtr, 3> parts;
  size_t part = 0;
  bool slice = false;
  while (!tokens_.IsOperator("]")) {
    if (tokens_.SkipOperator(":")) {
      slice = true;
      if (++part == parts.size()) return tokens_.Unexpected("']'");
      continue;
    }
    if (parts[part] != nullptr) return tokens_.Unexpected("']'");
    ASSIGN_OR_RETURN(parts[part], Parse());
    if (tokens_.IsOperator(",")) {
      return tokens_.Unsupported("an index of several parts");
    }
  }
  if (!slice && parts[0] == nullptr) return tokens_.Unexpected("an index");
  tokens_.Next();
  const int depth = std::max({DepthOf(object), DepthOf(parts[0]),
                              DepthOf(parts[1]), DepthOf(parts[2])});
  if (!slice) {
    return Make(line, depth, ItemOf{std::move(object), std::move(parts[0])});
  }
  return Make(line, depth,
              SliceOf{std::move(object), std::move(parts[0]),
                      std::move(parts[1]), std::move(parts[2])});
}

// From the opening parenthesis on.
absl::StatusOr<ArgumentList> ExpressionParser::ParseArguments() {
  RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  ArgumentList arguments;
  bool first = true;
  while (!tokens_.IsOperator(")")) {
    if (!first) RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    first = false;
    if (tokens_.IsOperator(")")) break;
    if (tokens_.IsOperator("*") || tokens_.IsOperator("**")) {
      return tokens_.Unsupported("'*' before an argument");
    }
    std::string name;
    if (tokens_.Is(Kind::kName) && tokens_.IsOperator("=", /*ahead=*/1)) {
      name = tokens_.Next().text;
      tokens_.Next();
    } else if (!arguments.named.empty()) {
      return tokens_.Unexpected("a named argument");
    }
    ASSIGN_OR_RETURN(ExpressionPtr value, Parse());
    if (name.empty()) {
      arguments.positional.push_back(std::move(value));
    } else {
      arguments.named.emplace_back(std::move(name), std::move(value));
    }
  }
  tokens_.Next();
  return arguments;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseCall(
    ExpressionPtr callee) {
  const int line = tokens_.line();
  CallOf node;
  node.callee = std::move(callee);
  ASSIGN_OR_RETURN(node.arguments, ParseArguments());
  const int depth = std::max(DepthOf(node.callee), DepthOf(node.arguments));
  return Make(line, depth, std::move(node));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseBareFilter() {
  return ParseFilter(nullptr);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFilter(
    ExpressionPtr input) {
  const int line = tokens_.line();
  if (!tokens_.Is(Kind::kName)) return tokens_.Unexpected("a filter's name");
  FilterOf node;
  node.input = std::move(input);
  node.filter = FindFilter(tokens_.Peek().text);
  if (node.filter == nullptr) {
    return tokens_.Unsupported("the filter " + Quoted(tokens_.Peek().text));
  }
  tokens_.Next();
  if (tokens_.IsOperator("(")) {
    ASSIGN_OR_RETURN(node.arguments, ParseArguments());
  }
  const int depth = std::max(DepthOf(node.input), DepthOf(node.arguments));
  return Make(line, depth, std::move(node));
}

// Whether an argument without parentheses follows a test: `is divisibleby 3`.
bool ExpressionParser::StartsTestArgument() const {
  if (tokens_.IsName("else") || tokens_.IsName("or") || tokens_.IsName("and")) {
    return false;
  }
  return tokens_.Is(Kind::kName) || tokens_.Is(Kind::kString) ||
         tokens_.Is(Kind::kInteger) || tokens_.Is(Kind::kFloat) ||
         tokens_.IsOperator("[") || tokens_.IsOperator("{");
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTest(ExpressionPtr input) {
  const int line = tokens_.Next().line;
  TestOf node;
  node.input = std::move(input);
  node.negated = tokens_.SkipName("not");
  if (!tokens_.Is(Kind::kName)) return tokens_.Unexpected("a test's name");
  node.test = FindTest(tokens_.Peek().text);
  if (node.test == nullptr) {
    return tokens_.Unsupported("the test " + Quoted(tokens_.Peek().text));
  }
  tokens_.Next();
  if (tokens_.IsOperator("(")) {
    ASSIGN_OR_RETURN(node.arguments, ParseArguments());
  } else if (StartsTestArgument()) {
    if (tokens_.IsName("is")) {
      return tokens_.Unexpected("no second test on the same value");
    }
    const Nesting level(nesting_);
    if (level.too_deep()) return TooDeep(tokens_.line());
    ASSIGN_OR_RETURN(ExpressionPtr argument, ParsePrimary());
    ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    node.arguments.positional.push_back(std::move(argument));
  }
  const int depth = std::max(DepthOf(node.input), DepthOf(node.arguments));
  return Make(line, depth, std::move(node));
}

}  // namespace reprise::jinja
