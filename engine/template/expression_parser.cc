#include "engine/template/expression_parser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/model/json_text.h"
#include "engine/template/make_expression.h"

namespace reprise::jinja {
namespace {

using Kind = Token::Kind;

}  // namespace

// ---- Operators, loosest first -----------------------------------------------

absl::StatusOr<ExpressionPtr> ExpressionParser::Parse() {
  const Nesting level(nesting_);
  if (level.too_deep()) return TooDeep(tokens_.line());
  ASSIGN_OR_RETURN(ExpressionPtr then, ParseOr());
  while (tokens_.IsName("if")) {
    const int line = tokens_.Next().line;
    Conditional node;
    node.then = std::move(then);
    ASSIGN_OR_RETURN(node.condition, ParseOr());
    if (tokens_.SkipName("else")) {
      ASSIGN_OR_RETURN(node.otherwise, Parse());
    }
    const int depth = std::max(
        {DepthOf(node.then), DepthOf(node.condition), DepthOf(node.otherwise)});
    ASSIGN_OR_RETURN(then, Make(line, depth, std::move(node)));
  }
  return then;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseWithoutCondition() {
  return ParseOr();
}

bool ExpressionParser::EndsTuple(std::string_view end) const {
  return tokens_.Is(Kind::kBlockEnd) || tokens_.Is(Kind::kPrintEnd) ||
         tokens_.IsOperator(")") || (!end.empty() && tokens_.IsName(end));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTuple(
    bool with_condition, std::string_view end) {
  const int line = tokens_.line();
  ListOf tuple;
  tuple.kind = SequenceKind::kTuple;
  while (true) {
    ASSIGN_OR_RETURN(ExpressionPtr item, with_condition ? Parse() : ParseOr());
    tuple.items.push_back(std::move(item));
    if (!tokens_.SkipOperator(",")) {
      if (tuple.items.size() == 1) return std::move(tuple.items[0]);
      break;
    }
    if (EndsTuple(end)) break;
  }
  const int depth = DepthOf(tuple.items);
  return Make(line, depth, std::move(tuple));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseOr() {
  ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
  while (tokens_.IsName("or")) {
    const int line = tokens_.Next().line;
    ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
    const int depth = std::max(DepthOf(left), DepthOf(right));
    ASSIGN_OR_RETURN(
        left, Make(line, depth,
                   Logic{/*is_and=*/false, std::move(left), std::move(right)}));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseAnd() {
  ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
  while (tokens_.IsName("and")) {
    const int line = tokens_.Next().line;
    ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
    const int depth = std::max(DepthOf(left), DepthOf(right));
    ASSIGN_OR_RETURN(
        left, Make(line, depth,
                   Logic{/*is_and=*/true, std::move(left), std::move(right)}));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseNot() {
  if (!tokens_.IsName("not")) return ParseComparison();
  const Nesting level(nesting_);
  if (level.too_deep()) return TooDeep(tokens_.line());
  const int line = tokens_.Next().line;
  ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
  const int depth = DepthOf(operand);
  return Make(line, depth, Unary{UnaryOperator::kNot, std::move(operand)});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseComparison() {
  constexpr std::array<std::pair<std::string_view, CompareOperator>, 6>
      kOperators = {{{"==", CompareOperator::kEqual},
                     {"!=", CompareOperator::kNotEqual},
                     {"<", CompareOperator::kLess},
                     {"<=", CompareOperator::kLessOrEqual},
                     {">", CompareOperator::kGreater},
                     {">=", CompareOperator::kGreaterOrEqual}}};
  const int line = tokens_.line();
  Comparison node;
  ASSIGN_OR_RETURN(node.first, ParseSum());
  int depth = DepthOf(node.first);
  while (true) {
    const auto it = std::find_if(
        kOperators.begin(), kOperators.end(),
        [this](const auto& op) { return tokens_.IsOperator(op.first); });
    CompareOperator op = CompareOperator::kIn;
    if (it != kOperators.end()) {
      tokens_.Next();
      op = it->second;
    } else if (tokens_.IsName("not") && tokens_.IsName("in", /*ahead=*/1)) {
      tokens_.Next();
      tokens_.Next();
      op = CompareOperator::kNotIn;
    } else if (!tokens_.SkipName("in")) {
      break;
    }
    ASSIGN_OR_RETURN(ExpressionPtr other, ParseSum());
    depth = std::max(depth, DepthOf(other));
    node.others.emplace_back(op, std::move(other));
  }
  if (node.others.empty()) return std::move(node.first);
  return Make(line, depth, std::move(node));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSum() {
  ASSIGN_OR_RETURN(ExpressionPtr left, ParseConcatenation());
  while (tokens_.IsOperator("+") || tokens_.IsOperator("-")) {
    const Token& token = tokens_.Next();
    const BinaryOperator op =
        token.text == "+" ? BinaryOperator::kAdd : BinaryOperator::kSubtract;
    ASSIGN_OR_RETURN(ExpressionPtr right, ParseConcatenation());
    const int depth = std::max(DepthOf(left), DepthOf(right));
    ASSIGN_OR_RETURN(left, Make(token.line, depth,
                                Binary{op, std::move(left), std::move(right)}));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseConcatenation() {
  const int line = tokens_.line();
  Concatenation node;
  do {
    ASSIGN_OR_RETURN(ExpressionPtr part, ParseProduct());
    node.parts.push_back(std::move(part));
  } while (tokens_.SkipOperator("~"));
  if (node.parts.size() == 1) return std::move(node.parts[0]);
  const int depth = DepthOf(node.parts);
  return Make(line, depth, std::move(node));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseProduct() {
  constexpr std::array<std::pair<std::string_view, BinaryOperator>, 4>
      kOperators = {{{"*", BinaryOperator::kMultiply},
                     {"/", BinaryOperator::kDivide},
                     {"//", BinaryOperator::kFloorDivide},
                     {"%", BinaryOperator::kModulo}}};
  ASSIGN_OR_RETURN(ExpressionPtr left, ParsePower());
  while (true) {
    const auto it = std::find_if(
        kOperators.begin(), kOperators.end(),
        [this](const auto& op) { return tokens_.IsOperator(op.first); });
    if (it == kOperators.end()) return left;
    const int line = tokens_.Next().line;
    ASSIGN_OR_RETURN(ExpressionPtr right, ParsePower());
    const int depth = std::max(DepthOf(left), DepthOf(right));
    ASSIGN_OR_RETURN(
        left, Make(line, depth,
                   Binary{it->second, std::move(left), std::move(right)}));
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePower() {
  ASSIGN_OR_RETURN(ExpressionPtr left, ParseUnary(/*with_filters=*/true));
  while (tokens_.IsOperator("**")) {
    const int line = tokens_.Next().line;
    ASSIGN_OR_RETURN(ExpressionPtr right, ParseUnary(/*with_filters=*/true));
    const int depth = std::max(DepthOf(left), DepthOf(right));
    ASSIGN_OR_RETURN(left, Make(line, depth,
                                Binary{BinaryOperator::kPower, std::move(left),
                                       std::move(right)}));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseUnary(bool with_filters) {
  const Nesting level(nesting_);
  if (level.too_deep()) return TooDeep(tokens_.line());
  ExpressionPtr node;
  if (tokens_.IsOperator("-") || tokens_.IsOperator("+")) {
    const Token& token = tokens_.Next();
    const UnaryOperator op =
        token.text == "-" ? UnaryOperator::kMinus : UnaryOperator::kPlus;
    ASSIGN_OR_RETURN(node, ParseUnary(/*with_filters=*/false));
    const int depth = DepthOf(node);
    ASSIGN_OR_RETURN(node, Make(token.line, depth, Unary{op, std::move(node)}));
  } else {
    ASSIGN_OR_RETURN(node, ParsePrimary());
  }
  ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
  if (!with_filters) return node;
  return ParseFiltersAndTests(std::move(node));
}

// ---- What operators work on -------------------------------------------------

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePrimary() {
  const int line = tokens_.line();
  const auto literal = [line](Value value) {
    return Make(line, 0, Literal{std::move(value)});
  };
  if (tokens_.Is(Kind::kName)) {
    const std::string& name = tokens_.Next().text;
    if (name == "true" || name == "True") return literal(Value::Bool(true));
    if (name == "false" || name == "False") return literal(Value::Bool(false));
    if (name == "none" || name == "None") return literal(Value());
    return Make(line, 0, NameOf{name});
  }
  if (tokens_.Is(Kind::kString)) {
    std::string text;
    while (tokens_.Is(Kind::kString)) text += tokens_.Next().text;
    return literal(Value::String(text));
  }
  if (tokens_.Is(Kind::kInteger) || tokens_.Is(Kind::kFloat)) {
    return ParseNumber();
  }
  if (tokens_.IsOperator("(")) return ParseParentheses();
  if (tokens_.IsOperator("[")) return ParseList();
  if (tokens_.IsOperator("{")) return ParseDict();
  return tokens_.Unexpected("a value");
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseNumber() {
  const Token& token = tokens_.Next();
  if (token.kind == Kind::kFloat) {
    return Make(
        token.line, 0,
        Literal{Value::Float(std::strtod(token.text.c_str(), nullptr))});
  }
  int64_t number = 0;
  const char* end = token.text.data() + token.text.size();
  if (std::from_chars(token.text.data(), end, number).ec != std::errc()) {
    return ErrorAt(token.line, absl::StatusCode::kUnimplemented,
                   absl::StrCat("the number ", Quoted(token.text),
                                " has more than 64 bits"));
  }
  return Make(token.line, 0, Literal{Value::Int(number)});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseParentheses() {
  const int line = tokens_.Next().line;
  if (tokens_.SkipOperator(")")) {
    ListOf empty;
    empty.kind = SequenceKind::kTuple;
    return Make(line, 0, std::move(empty));
  }
  ASSIGN_OR_RETURN(ExpressionPtr inside, ParseTuple(/*with_condition=*/true));
  RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
  return inside;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseList() {
  const int line = tokens_.Next().line;
  ListOf list;
  while (!tokens_.IsOperator("]")) {
    if (!list.items.empty()) RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (tokens_.IsOperator("]")) break;
    ASSIGN_OR_RETURN(ExpressionPtr item, Parse());
    list.items.push_back(std::move(item));
  }
  tokens_.Next();
  const int depth = DepthOf(list.items);
  return Make(line, depth, std::move(list));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseDict() {
  const int line = tokens_.Next().line;
  DictOf dict;
  int depth = 0;
  while (!tokens_.IsOperator("}")) {
    if (!dict.entries.empty()) RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (tokens_.IsOperator("}")) break;
    ASSIGN_OR_RETURN(ExpressionPtr key, Parse());
    RETURN_IF_ERROR(tokens_.ExpectOperator(":"));
    ASSIGN_OR_RETURN(ExpressionPtr value, Parse());
    depth = std::max({depth, DepthOf(key), DepthOf(value)});
    dict.entries.emplace_back(std::move(key), std::move(value));
  }
  tokens_.Next();
  return Make(line, depth, std::move(dict));
}

}  // namespace reprise::jinja
