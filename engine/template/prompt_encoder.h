// Prompts to tokens, with special tokens only where the template wrote them.
#ifndef ENGINE_TEMPLATE_PROMPT_ENCODER_H_
#define ENGINE_TEMPLATE_PROMPT_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/added_tokens.h"
#include "engine/template/chat_template.h"
#include "engine/tokenizer.h"

namespace reprise {

struct EncodedPrompt {
  std::vector<int32_t> ids;
  // Bytes of the prompt before everything that came from the request.
  size_t opening_bytes = 0;
  // How many ids come up to and with the first special token, if that stands
  // in those bytes; else 0.
  size_t opening = 0;
};

// Immutable after construction; thread-safe.
class PromptEncoder {
 public:
  // `tokenizer` must outlive the encoder. Of `names`, those of ids that are
  // special tokens of the tokenizer's are names of theirs too.
  explicit PromptEncoder(const Tokenizer& tokenizer,
                         const TokenNames& names = {});

  // The tokens of the prompt: Encode with special tokens allowed, if none of
  // their names touches what is plain. Else the text between those of the
  // template is encoded piece by piece, as plain text. So no special token is
  // in the result that the template did not write. The errors of EncodeUpTo.
  absl::StatusOr<EncodedPrompt> Encode(const ChatPrompt& prompt,
                                       size_t max_tokens = kAnyTokens) const;

  // The token of that name, by any of its names.
  std::optional<int32_t> FindToken(std::string_view name) const;

 private:
  const Tokenizer& tokenizer_;
  const std::vector<AddedToken> names_;  // of special tokens
  const AddedTokenMatcher special_;      // of names_
};

}  // namespace reprise

#endif  // ENGINE_TEMPLATE_PROMPT_ENCODER_H_
