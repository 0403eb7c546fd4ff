#include "engine/template/token_stream.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/model/json_text.h"

namespace reprise::jinja {
namespace {

std::string Describe(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kData:
      return "text";
    case Token::Kind::kBlockBegin:
      return "'{%'";
    case Token::Kind::kBlockEnd:
      return "'%}'";
    case Token::Kind::kPrintBegin:
      return "'{{'";
    case Token::Kind::kPrintEnd:
      return "'}}'";
    case Token::Kind::kString:
      return "the string " + Quoted(token.text);
    case Token::Kind::kEnd:
      return "the end of the template";
    default:
      return Quoted(token.text);
  }
}

}  // namespace

const Token& TokenStream::Peek(size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}

const Token& TokenStream::Next() {
  const Token& token = Peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenStream::IsOperator(std::string_view op, size_t ahead) const {
  const Token& token = Peek(ahead);
  return token.kind == Token::Kind::kOperator && token.text == op;
}

bool TokenStream::IsName(std::string_view name, size_t ahead) const {
  const Token& token = Peek(ahead);
  return token.kind == Token::Kind::kName && token.text == name;
}

bool TokenStream::Skip(Token::Kind kind) {
  if (!Is(kind)) return false;
  Next();
  return true;
}

bool TokenStream::SkipOperator(std::string_view op) {
  if (!IsOperator(op)) return false;
  Next();
  return true;
}

bool TokenStream::SkipName(std::string_view name) {
  if (!IsName(name)) return false;
  Next();
  return true;
}

absl::Status TokenStream::Expect(Token::Kind kind, std::string_view what) {
  return Skip(kind) ? absl::OkStatus() : Unexpected(what);
}

absl::Status TokenStream::ExpectOperator(std::string_view op) {
  return SkipOperator(op) ? absl::OkStatus()
                          : Unexpected(absl::StrCat("'", ToAbsl(op), "'"));
}

absl::Status TokenStream::ExpectName(std::string_view name) {
  return SkipName(name) ? absl::OkStatus()
                        : Unexpected(absl::StrCat("'", ToAbsl(name), "'"));
}

absl::Status TokenStream::Unexpected(std::string_view wanted) const {
  return ErrorAt(
      line(), absl::StatusCode::kInvalidArgument,
      absl::StrCat("expected ", ToAbsl(wanted), ", found ", Describe(Peek())));
}

absl::Status TokenStream::Unsupported(std::string_view what) const {
  return ErrorAt(line(), absl::StatusCode::kUnimplemented,
                 absl::StrCat(ToAbsl(what), " is not supported"));
}

}  // namespace reprise::jinja
