// Cuts a template's source into tokens, white space trimmed as Hugging Face
// sets Jinja up: trim_blocks (the newline after a block tag goes) and
// lstrip_blocks (white space before one on its line goes).
#ifndef ENGINE_TEMPLATE_LEXER_H_
#define ENGINE_TEMPLATE_LEXER_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reprise::jinja {

struct Token {
  enum class Kind {
    kData,        // text between tags
    kBlockBegin,  // {%
    kBlockEnd,
    kPrintBegin,  // {{
    kPrintEnd,
    kName,
    kString,  // `text` is what it stands for
    kInteger,
    kFloat,
    kOperator,
    kEnd,  // of the source; always the last
  };
  Kind kind = Kind::kEnd;
  std::string text;
  int line = 1;
};

// "line 3: ..." with `code`.
absl::Status ErrorAt(int line, absl::StatusCode code, std::string_view message);

// InvalidArgument, with the line, for what Jinja would not read and for a
// source that is too long or not UTF-8; Unimplemented for what is Jinja's and
// not supported here. Comments are left out; the last newline is, too.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace reprise::jinja

#endif  // ENGINE_TEMPLATE_LEXER_H_
