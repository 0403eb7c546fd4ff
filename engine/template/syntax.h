// The tree of a template: what the parser makes and the evaluator runs.
#ifndef ENGINE_TEMPLATE_SYNTAX_H_
#define ENGINE_TEMPLATE_SYNTAX_H_

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/template/expression.h"
#include "engine/template/marked_text.h"

namespace reprise::jinja {

struct Statement;
using Block = std::vector<Statement>;

// What a value is assigned to: a name, an attribute of a namespace, or several
// names for the parts of a sequence.
struct Target {
  std::string name;
  std::string attribute;  // empty: the name itself
  std::vector<Target> parts;
};

struct Data {
  Text text;
};
struct Print {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
};
struct For {
  Target target;
  ExpressionPtr items;
  ExpressionPtr condition;  // may be null
  Block body;
  Block otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  std::vector<ExpressionPtr> filters;  // FilterOf without an input
  Block body;
};
struct MacroOf {
  std::string name;
  struct Parameter {
    std::string name;
    ExpressionPtr otherwise;  // may be null
  };
  std::vector<Parameter> parameters;
  Block body;
};
// {% generation %}: marks what the model wrote, for training. Here it only has
// a scope of its own.
struct Generation {
  Block body;
};
struct Break {};
struct Continue {};

struct Statement {
  std::variant<Data, Print, If, For, Set, SetBlock, MacroOf, Generation, Break,
               Continue>
      node;
  int line = 0;
};

}  // namespace reprise::jinja

#endif  // ENGINE_TEMPLATE_SYNTAX_H_
