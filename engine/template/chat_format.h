// How a model is talked to: from the messages of a conversation to the tokens
// that its session is fed.
//
//   begin     all messages, as the template has them from its first word on
//   continue  what new messages add behind an answer of the model's: the end of
//             that answer, as the template writes it, and the messages
//
// Both end with what an answer begins with. The ways that an answer can end are
// the template's and the sampler's: of a token that did end it, the session has
// that token already, and it is not fed twice (TokensToFeed).
#ifndef ENGINE_TEMPLATE_CHAT_FORMAT_H_
#define ENGINE_TEMPLATE_CHAT_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/template/chat_template.h"
#include "engine/template/prompt_encoder.h"
#include "engine/tokenizer.h"

namespace reprise {

// The tokens of new messages in a conversation that stands after an answer.
struct Continuation {
  std::vector<int32_t> ids;
  // The first `closing` of them end the answer, the last of these with the
  // token `end`; none if the template ends answers without one.
  std::optional<int32_t> end = std::nullopt;
  size_t closing = 0;

  // `ids` without what the conversation has, whose last token is `last`.
  std::span<const int32_t> TokensToFeed(int32_t last) const;
};

// Immutable after construction; thread-safe.
class ChatFormat {
 public:
  // Of the model in that folder. A template that is missing or that cannot be
  // used is no error here: status() tells. `eos_tokens` are the model's;
  // `tokenizer` must outlive the format.
  static ChatFormat Load(const std::string& model_dir,
                         const Tokenizer& tokenizer,
                         std::vector<int32_t> eos_tokens);

  // OK, or FailedPrecondition with why there is no talking to the model: no
  // template, or what in it is wrong or unsupported.
  const absl::Status& status() const { return problem_; }
  // Whether the folder has a template, be it one that cannot be used.
  bool has_template() const { return has_template_; }
  // The template's file, or "built in"; empty unless status() is OK.
  const std::string& source() const { return source_; }

  // Messages are UTF-8. status() if that is not OK; FailedPrecondition for what
  // turns out to be unsupported, or a template that cannot continue;
  // InvalidArgument, naming the template's line, if the template refuses the
  // messages (raise_exception), goes wrong, or takes more steps or memory than
  // it may; the errors of Tokenizer::EncodeUpTo.
  absl::StatusOr<std::vector<int32_t>> Begin(
      std::span<const ChatMessage> messages, const ChatOptions& options) const;
  absl::StatusOr<Continuation> Continue(std::span<const ChatMessage> messages,
                                        const ChatOptions& options) const;

  // What ends an answer: the model's tokens and the one of the tokenizer's
  // config, and texts.
  const std::vector<int32_t>& eos_tokens() const { return eos_tokens_; }
  const std::vector<std::string>& stop() const { return stop_; }

 private:
  ChatFormat(const Tokenizer& tokenizer, std::vector<int32_t> eos_tokens)
      : tokenizer_(tokenizer),
        encoder_(tokenizer),
        eos_tokens_(std::move(eos_tokens)) {}
  ChatFormat(const Tokenizer& tokenizer, std::vector<int32_t> eos_tokens,
             ChatTemplate chat_template);

  absl::StatusOr<EncodedPrompt> Encode(absl::StatusOr<ChatPrompt> prompt,
                                       const ChatOptions& options) const;

  const Tokenizer& tokenizer_;
  absl::Status problem_;  // why messages are refused
  bool has_template_ = false;
  std::string source_;
  std::optional<ChatTemplate> template_;  // if there is none
  PromptEncoder encoder_;
  std::vector<int32_t> eos_tokens_;
  std::vector<std::string> stop_;
};

}  // namespace reprise

#endif  // ENGINE_TEMPLATE_CHAT_FORMAT_H_
