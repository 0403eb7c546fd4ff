// The trees of expressions: what the parser makes and the evaluator runs.
#ifndef ENGINE_TEMPLATE_EXPRESSION_H_
#define ENGINE_TEMPLATE_EXPRESSION_H_

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/template/builtin.h"
#include "engine/template/value.h"

namespace reprise::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Literal {
  Value value;
};
struct NameOf {
  std::string name;
};
struct ListOf {
  std::vector<ExpressionPtr> items;
  SequenceKind kind = SequenceKind::kList;
};
struct DictOf {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct AttributeOf {  // object.name
  ExpressionPtr object;
  std::string name;
};
struct ItemOf {  // object[key]
  ExpressionPtr object;
  ExpressionPtr key;
};
struct SliceOf {  // object[start:stop:step], each may be null
  ExpressionPtr object;
  ExpressionPtr start, stop, step;
};
struct ArgumentList {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};
struct CallOf {
  ExpressionPtr callee;
  ArgumentList arguments;
};
struct FilterOf {  // input | filter(arguments); input is null in a block set
  ExpressionPtr input;
  const Builtin* filter = nullptr;
  ArgumentList arguments;
};
struct TestOf {  // input is test(arguments)
  ExpressionPtr input;
  const Builtin* test = nullptr;
  ArgumentList arguments;
  bool negated = false;
};
enum class UnaryOperator { kMinus, kPlus, kNot };
struct Unary {
  UnaryOperator op;
  ExpressionPtr operand;
};
enum class BinaryOperator {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower
};
struct Binary {
  BinaryOperator op;
  ExpressionPtr left, right;
};
struct Logic {  // left and right, left or right
  bool is_and = false;
  ExpressionPtr left, right;
};
enum class CompareOperator {
  kEqual,
  kNotEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kIn,
  kNotIn
};
struct Comparison {  // first op other op other ...
  ExpressionPtr first;
  std::vector<std::pair<CompareOperator, ExpressionPtr>> others;
};
struct Concatenation {  // part ~ part ~ ...
  std::vector<ExpressionPtr> parts;
};
struct Conditional {  // then if condition else otherwise, which may be null
  ExpressionPtr condition, then, otherwise;
};

struct Expression {
  std::variant<Literal, NameOf, ListOf, DictOf, AttributeOf, ItemOf, SliceOf,
               CallOf, FilterOf, TestOf, Unary, Binary, Logic, Comparison,
               Concatenation, Conditional>
      node;
  int line = 0;
  int depth = 1;  // of the tree below it; at most kMaxSyntaxDepth
};

}  // namespace reprise::jinja

#endif  // ENGINE_TEMPLATE_EXPRESSION_H_
