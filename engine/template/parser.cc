#include "engine/template/parser.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/model/json_text.h"
#include "engine/template/expression_parser.h"
#include "engine/template/token_stream.h"

namespace reprise::jinja {
namespace {

using Kind = Token::Kind;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  absl::StatusOr<Block> Run() { return ParseBlock({}, "", 0); }

 private:
  // Statements up to a tag that is one of `ends`, whose name is still to be
  // read; to the end of the source if there are none. `opened` is what began
  // the block, at `line`.
  absl::StatusOr<Block> ParseBlock(std::vector<std::string_view> ends,
                                   std::string_view opened, int line);
  // A block with one possible end, which is read with its tag's end.
  absl::StatusOr<Block> ParseBlockAndEnd(std::string_view end,
                                         std::string_view opened, int line);
  absl::Status ParseTag(Block& block);
  absl::StatusOr<If> ParseIf(int line);
  absl::StatusOr<For> ParseFor(int line);
  absl::Status ParseSet(int line, Block& block);
  absl::StatusOr<MacroOf> ParseMacro(int line);
  absl::StatusOr<Generation> ParseGeneration(int line);
  absl::Status ParseLoopControl(const std::string& name, int line,
                                Block& block);
  absl::StatusOr<Target> ParseTarget();
  absl::StatusOr<Target> ParseOneTarget();
  // The end of a tag; a colon may stand before it.
  absl::Status EndTag() {
    tokens_.SkipOperator(":");
    return tokens_.Expect(Kind::kBlockEnd, "'%}'");
  }

  TokenStream tokens_;
  ExpressionParser expressions_{tokens_};
  int nesting_ = 0;
  int loops_ = 0;  // around this place, in this macro or generation block
};

absl::StatusOr<Block> Parser::ParseBlock(std::vector<std::string_view> ends,
                                         std::string_view opened, int line) {
  if (nesting_ == kMaxSyntaxDepth) {
    return ErrorAt(
        line, absl::StatusCode::kInvalidArgument,
        absl::StrCat("blocks are nested deeper than ", kMaxSyntaxDepth));
  }
  ++nesting_;
  Block block;
  while (!tokens_.Is(Kind::kEnd)) {
    const Token& token = tokens_.Next();
    if (token.kind == Kind::kData) {
      block.push_back({Data{FromUtf8(token.text)}, token.line});
    } else if (token.kind == Kind::kPrintBegin) {
      Print print;
      ASSIGN_OR_RETURN(print.value,
                       expressions_.ParseTuple(/*with_condition=*/true));
      RETURN_IF_ERROR(tokens_.Expect(Kind::kPrintEnd, "'}}'"));
      block.push_back({std::move(print), token.line});
    } else {  // kBlockBegin: the lexer lets nothing else stand outside a tag
      const bool at_end = std::any_of(
          ends.begin(), ends.end(),
          [this](std::string_view end) { return tokens_.IsName(end); });
      if (at_end) {
        --nesting_;
        return block;
      }
      RETURN_IF_ERROR(ParseTag(block));
    }
  }
  --nesting_;
  if (ends.empty()) return block;
  return ErrorAt(line, absl::StatusCode::kInvalidArgument,
                 absl::StrCat("'", ToAbsl(opened), "' has no '",
                              ToAbsl(ends.back()), "'"));
}

absl::StatusOr<Block> Parser::ParseBlockAndEnd(std::string_view end,
                                               std::string_view opened,
                                               int line) {
  ASSIGN_OR_RETURN(Block block, ParseBlock({end}, opened, line));
  tokens_.Next();
  RETURN_IF_ERROR(EndTag());
  return block;
}

absl::Status Parser::ParseTag(Block& block) {
  if (!tokens_.Is(Kind::kName)) return tokens_.Unexpected("a tag's name");
  const std::string name = tokens_.Peek().text;
  const int line = tokens_.line();
  const auto add = [&block, line](auto statement) -> absl::Status {
    if (!statement.ok()) return statement.status();
    block.push_back({*std::move(statement), line});
    return absl::OkStatus();
  };
  if (name == "set") return ParseSet(line, block);
  if (name == "if") return add(ParseIf(line));
  if (name == "for") return add(ParseFor(line));
  if (name == "macro") return add(ParseMacro(line));
  if (name == "generation") return add(ParseGeneration(line));
  if (name == "break" || name == "continue") {
    return ParseLoopControl(name, line, block);
  }
  constexpr std::string_view kJinjas[] = {
      "autoescape", "block",  "call",    "do",   "extends", "filter",
      "from",       "import", "include", "with", "trans",   "print"};
  if (std::find(std::begin(kJinjas), std::end(kJinjas), name) !=
      std::end(kJinjas)) {
    return tokens_.Unsupported("the tag " + Quoted(name));
  }
  return tokens_.Unexpected("a tag");
}

absl::Status Parser::ParseLoopControl(const std::string& name, int line,
                                      Block& block) {
  tokens_.Next();
  if (loops_ == 0) {
    return ErrorAt(line, absl::StatusCode::kInvalidArgument,
                   absl::StrCat("'", name, "' stands outside of a loop"));
  }
  RETURN_IF_ERROR(EndTag());
  if (name == "break") {
    block.push_back({Break{}, line});
  } else {
    block.push_back({Continue{}, line});
  }
  return absl::OkStatus();
}

absl::StatusOr<If> Parser::ParseIf(int line) {
  If node;
  bool more = true;
  while (more) {
    tokens_.Next();  // if, elif
    ASSIGN_OR_RETURN(ExpressionPtr condition,
                     expressions_.ParseTuple(/*with_condition=*/false));
    RETURN_IF_ERROR(EndTag());
    ASSIGN_OR_RETURN(Block body,
                     ParseBlock({"elif", "else", "endif"}, "if", line));
    node.branches.emplace_back(std::move(condition), std::move(body));
    more = tokens_.IsName("elif");
  }
  if (tokens_.SkipName("else")) {
    RETURN_IF_ERROR(EndTag());
    ASSIGN_OR_RETURN(node.otherwise, ParseBlockAndEnd("endif", "if", line));
    return node;
  }
  tokens_.Next();  // endif
  RETURN_IF_ERROR(EndTag());
  return node;
}

absl::StatusOr<For> Parser::ParseFor(int line) {
  tokens_.Next();
  For node;
  ASSIGN_OR_RETURN(node.target, ParseTarget());
  RETURN_IF_ERROR(tokens_.ExpectName("in"));
  ASSIGN_OR_RETURN(node.items, expressions_.ParseTuple(
                                   /*with_condition=*/false, "recursive"));
  if (tokens_.SkipName("if")) {
    ASSIGN_OR_RETURN(node.condition, expressions_.Parse());
  }
  if (tokens_.IsName("recursive")) return tokens_.Unsupported("'recursive'");
  RETURN_IF_ERROR(EndTag());
  ++loops_;
  ASSIGN_OR_RETURN(node.body, ParseBlock({"else", "endfor"}, "for", line));
  --loops_;
  if (tokens_.SkipName("else")) {
    RETURN_IF_ERROR(EndTag());
    ASSIGN_OR_RETURN(node.otherwise, ParseBlockAndEnd("endfor", "for", line));
    return node;
  }
  tokens_.Next();  // endfor
  RETURN_IF_ERROR(EndTag());
  return node;
}

absl::Status Parser::ParseSet(int line, Block& block) {
  tokens_.Next();
  ASSIGN_OR_RETURN(Target target, ParseTarget());
  if (tokens_.SkipOperator("=")) {
    ASSIGN_OR_RETURN(ExpressionPtr value,
                     expressions_.ParseTuple(/*with_condition=*/true));
    RETURN_IF_ERROR(EndTag());
    block.push_back({Set{std::move(target), std::move(value)}, line});
    return absl::OkStatus();
  }
  SetBlock node;
  node.target = std::move(target);
  while (tokens_.SkipOperator("|")) {
    ASSIGN_OR_RETURN(ExpressionPtr filter, expressions_.ParseBareFilter());
    node.filters.push_back(std::move(filter));
  }
  RETURN_IF_ERROR(EndTag());
  ASSIGN_OR_RETURN(node.body, ParseBlockAndEnd("endset", "set", line));
  block.push_back({std::move(node), line});
  return absl::OkStatus();
}

absl::StatusOr<MacroOf> Parser::ParseMacro(int line) {
  tokens_.Next();
  MacroOf node;
  node.name = tokens_.Peek().text;
  RETURN_IF_ERROR(tokens_.Expect(Kind::kName, "the macro's name"));
  RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  while (!tokens_.IsOperator(")")) {
    if (!node.parameters.empty()) RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    MacroOf::Parameter parameter;
    parameter.name = tokens_.Peek().text;
    RETURN_IF_ERROR(tokens_.Expect(Kind::kName, "a parameter's name"));
    if (tokens_.SkipOperator("=")) {
      ASSIGN_OR_RETURN(parameter.otherwise, expressions_.Parse());
    } else if (!node.parameters.empty() &&
               node.parameters.back().otherwise != nullptr) {
      return tokens_.Unexpected("'=': the parameter before it has a default");
    }
    node.parameters.push_back(std::move(parameter));
  }
  tokens_.Next();
  RETURN_IF_ERROR(EndTag());
  const int loops = std::exchange(loops_, 0);
  ASSIGN_OR_RETURN(node.body, ParseBlockAndEnd("endmacro", "macro", line));
  loops_ = loops;
  return node;
}

absl::StatusOr<Generation> Parser::ParseGeneration(int line) {
  tokens_.Next();
  RETURN_IF_ERROR(EndTag());
  Generation node;
  const int loops = std::exchange(loops_, 0);
  ASSIGN_OR_RETURN(node.body,
                   ParseBlockAndEnd("endgeneration", "generation", line));
  loops_ = loops;
  return node;
}

// One target, or several with commas between them.
absl::StatusOr<Target> Parser::ParseTarget() {
  ASSIGN_OR_RETURN(Target first, ParseOneTarget());
  if (!tokens_.IsOperator(",")) return first;
  Target targets;
  targets.parts.push_back(std::move(first));
  while (tokens_.SkipOperator(",")) {
    if (!tokens_.Is(Kind::kName) && !tokens_.IsOperator("(")) break;
    ASSIGN_OR_RETURN(Target next, ParseOneTarget());
    targets.parts.push_back(std::move(next));
  }
  return targets;
}

absl::StatusOr<Target> Parser::ParseOneTarget() {
  if (tokens_.SkipOperator("(")) {
    if (nesting_ == kMaxSyntaxDepth) return tokens_.Unexpected("a name");
    ++nesting_;
    ASSIGN_OR_RETURN(Target inside, ParseTarget());
    --nesting_;
    RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
    return inside;
  }
  Target target;
  target.name = tokens_.Peek().text;
  RETURN_IF_ERROR(tokens_.Expect(Kind::kName, "a name to assign to"));
  constexpr std::string_view kConstants[] = {"true",  "True", "false",
                                             "False", "none", "None"};
  if (std::find(std::begin(kConstants), std::end(kConstants), target.name) !=
      std::end(kConstants)) {
    return tokens_.Unexpected("a name that is no constant before it");
  }
  if (tokens_.SkipOperator(".")) {
    target.attribute = tokens_.Peek().text;
    RETURN_IF_ERROR(tokens_.Expect(Kind::kName, "an attribute's name"));
  }
  return target;
}

}  // namespace

absl::StatusOr<Block> ParseTemplate(std::string_view source) {
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace reprise::jinja
