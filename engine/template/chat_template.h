// From a conversation to a prompt, as the model's folder says.
//
// A template is the first of these that the folder has: the file
// chat_template.jinja; the chat_template of tokenizer_config.json; that of
// chat_template.json. The latter two are a string, or a list of named ones, of
// which "default" is used. Models with the vocabulary of RWKV World and none of
// these get the form that they were trained on,
//
//   User: hi
//
//   Assistant: Hello!
//
// What a request says is marked in the result: names of special tokens there
// are plain text, unless the request wants them. Roles are the exception, as
// templates make tokens of them ("<|" + role + "|>"): system, developer, user,
// assistant and tool.
#ifndef ENGINE_TEMPLATE_CHAT_TEMPLATE_H_
#define ENGINE_TEMPLATE_CHAT_TEMPLATE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/template/template.h"
#include "engine/tokenizer.h"

namespace reprise {

struct ChatMessage {
  std::string role;
  std::string content;
};

struct ChatOptions {
  // Ends with what an answer of the model's begins with.
  bool add_generation_prompt = true;
  // Contents may name special tokens and mean them: goes into the prompt.
  bool allow_special = false;
  int64_t now_unix_ms = 0;
  // Of the prompt, for ChatFormat; a template does not count them.
  size_t max_tokens = kAnyTokens;
};

// Bytes of a text, from `begin` up to `end`.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

// A text, and the parts of it that came from the request: sorted, apart.
struct ChatPrompt {
  std::string text;
  std::vector<TextRange> plain;
  bool allow_special = false;  // their names of special tokens mean them
};

using TokenNames = std::vector<std::pair<std::string, int64_t>>;

// Immutable after construction; thread-safe.
class ChatTemplate {
 public:
  // The template of the model in that folder, whose tokenizer is of that kind
  // (Tokenizer::kind). NotFound if it has none. InvalidArgument or
  // Unimplemented, naming the file, for one that cannot be used; Unavailable
  // for a file that cannot be read.
  static absl::StatusOr<ChatTemplate> Load(const std::string& model_dir,
                                           std::string_view tokenizer_kind);

  // The prompt of a conversation from its beginning. Messages are UTF-8. The
  // errors of Template::Render.
  absl::StatusOr<ChatPrompt> Render(std::span<const ChatMessage> messages,
                                    const ChatOptions& options) const;

  // What these messages add to a conversation that stands after an answer of
  // the model's: the end of the answer, as far as the template writes one, and
  // the messages. FailedPrecondition if the template does not show answers as
  // they are, so that there is no telling.
  absl::StatusOr<ChatPrompt> RenderNext(std::span<const ChatMessage> messages,
                                        const ChatOptions& options) const;

  // The file that it is from, or "built in".
  const std::string& source() const { return source_; }
  // The token that ends an answer, by name, if the folder says so.
  const std::optional<std::string>& eos_token() const { return eos_token_; }
  // Texts that end an answer beside it.
  const std::vector<std::string>& stop() const { return stop_; }
  // Tokens by the names that the folder's configs have for them, which may be
  // others than the vocabulary's.
  const TokenNames& token_names() const { return token_names_; }

 private:
  using Variables = std::vector<std::pair<std::string, jinja::Value>>;

  explicit ChatTemplate(jinja::Template parsed)
      : template_(std::move(parsed)) {}

  absl::StatusOr<jinja::Text> RenderText(std::vector<jinja::Value> messages,
                                         const ChatOptions& options) const;

  jinja::Template template_;
  std::string source_;
  Variables special_tokens_;  // bos_token and so on
  TokenNames token_names_;
  std::optional<std::string> eos_token_;
  std::vector<std::string> stop_;
};

}  // namespace reprise

#endif  // ENGINE_TEMPLATE_CHAT_TEMPLATE_H_
