// The tokens of a template, read from the front, for the parsers.
#ifndef ENGINE_TEMPLATE_TOKEN_STREAM_H_
#define ENGINE_TEMPLATE_TOKEN_STREAM_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/template/lexer.h"

namespace reprise::jinja {

class TokenStream {
 public:
  // `tokens` are what Tokenize returned.
  explicit TokenStream(std::vector<Token> tokens)
      : tokens_(std::move(tokens)) {}

  // The token `ahead` of the next one; the last one for ever.
  const Token& Peek(size_t ahead = 0) const;
  // The next token. It stays at the last one.
  const Token& Next();
  int line() const { return Peek().line; }

  bool Is(Token::Kind kind) const { return Peek().kind == kind; }
  bool IsOperator(std::string_view op, size_t ahead = 0) const;
  bool IsName(std::string_view name, size_t ahead = 0) const;
  // True, and past it, if that is next.
  bool Skip(Token::Kind kind);
  bool SkipOperator(std::string_view op);
  bool SkipName(std::string_view name);

  // InvalidArgument, with the line, unless that is next; then past it.
  absl::Status Expect(Token::Kind kind, std::string_view what);
  absl::Status ExpectOperator(std::string_view op);
  absl::Status ExpectName(std::string_view name);

  // InvalidArgument: what was expected, and what stands there.
  absl::Status Unexpected(std::string_view wanted) const;
  absl::Status Unsupported(std::string_view what) const;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace reprise::jinja

#endif  // ENGINE_TEMPLATE_TOKEN_STREAM_H_
