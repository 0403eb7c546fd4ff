// From a template's source to its tree.
#ifndef ENGINE_TEMPLATE_PARSER_H_
#define ENGINE_TEMPLATE_PARSER_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/template/syntax.h"

namespace reprise::jinja {

// The errors of Tokenize and ExpressionParser, and the same for statements.
absl::StatusOr<Block> ParseTemplate(std::string_view source);

}  // namespace reprise::jinja

#endif  // ENGINE_TEMPLATE_PARSER_H_
