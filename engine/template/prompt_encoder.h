// Prompts to tokens, with special tokens only where the template wrote them.
#ifndef ENGINE_TEMPLATE_PROMPT_ENCODER_H_
#define ENGINE_TEMPLATE_PROMPT_ENCODER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/added_tokens.h"
#include "engine/template/chat_template.h"
#include "engine/tokenizer.h"

namespace reprise {

// Immutable after construction; thread-safe.
class PromptEncoder {
 public:
  // `tokenizer` must outlive the encoder.
  explicit PromptEncoder(const Tokenizer& tokenizer);

  // The tokens of the prompt: Encode with special tokens allowed, if none of
  // their names touches what came from the request. Else the text between
  // those of the template is encoded piece by piece, as plain text. So no
  // special token is in the result that the template did not write. The errors
  // of Encode.
  absl::StatusOr<std::vector<int32_t>> Encode(const ChatPrompt& prompt) const;

 private:
  const Tokenizer& tokenizer_;
  const AddedTokenMatcher special_;
};

}  // namespace reprise

#endif  // ENGINE_TEMPLATE_PROMPT_ENCODER_H_
