#include "engine/template/chat_format.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// What a template's error is to whoever sent the messages.
absl::Status OfRequest(const absl::Status& status, const std::string& source) {
  const std::string text =
      absl::StrCat("the chat template (", source, "): ", status.message());
  switch (status.code()) {
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kFailedPrecondition:
      return absl::FailedPreconditionError(text);
    default:  // trying again would not help, so not ResourceExhausted either
      return absl::InvalidArgumentError(text);
  }
}

}  // namespace

std::span<const int32_t> Continuation::TokensToFeed(int32_t last) const {
  return std::span(ids).subspan(end == last ? closing : 0);
}

ChatFormat::ChatFormat(const Tokenizer& tokenizer,
                       std::vector<int32_t> eos_tokens,
                       ChatTemplate chat_template)
    : tokenizer_(tokenizer),
      has_template_(true),
      source_(chat_template.source()),
      template_(std::move(chat_template)),
      encoder_(tokenizer, template_->token_names()),
      eos_tokens_(std::move(eos_tokens)),
      stop_(template_->stop()) {
  if (!template_->eos_token().has_value()) return;
  const std::optional<int32_t> id = encoder_.FindToken(*template_->eos_token());
  if (id.has_value() && !Contains(eos_tokens_, *id)) eos_tokens_.push_back(*id);
}

ChatFormat ChatFormat::Load(const std::string& model_dir,
                            const Tokenizer& tokenizer,
                            std::vector<int32_t> eos_tokens) {
  absl::StatusOr<ChatTemplate> loaded =
      ChatTemplate::Load(model_dir, tokenizer.kind());
  if (loaded.ok()) {
    return ChatFormat(tokenizer, std::move(eos_tokens), *std::move(loaded));
  }
  ChatFormat none(tokenizer, std::move(eos_tokens));
  none.has_template_ = !absl::IsNotFound(loaded.status());
  none.problem_ = absl::FailedPreconditionError(
      none.has_template_
          ? absl::StrCat("the model's chat template cannot be used: ",
                         loaded.status().message(), "; send text")
          : absl::StrCat(loaded.status().message(), "; send text"));
  return none;
}

absl::StatusOr<EncodedPrompt> ChatFormat::Encode(
    absl::StatusOr<ChatPrompt> prompt, const ChatOptions& options) const {
  if (!prompt.ok()) return OfRequest(prompt.status(), source_);
  return encoder_.Encode(*prompt, options.max_tokens);
}

absl::StatusOr<std::vector<int32_t>> ChatFormat::Begin(
    std::span<const ChatMessage> messages, const ChatOptions& options) const {
  RETURN_IF_ERROR(problem_);
  ASSIGN_OR_RETURN(EncodedPrompt encoded,
                   Encode(template_->Render(messages, options), options));
  return std::move(encoded.ids);
}

absl::StatusOr<Continuation> ChatFormat::Continue(
    std::span<const ChatMessage> messages, const ChatOptions& options) const {
  RETURN_IF_ERROR(problem_);
  ASSIGN_OR_RETURN(EncodedPrompt encoded,
                   Encode(template_->RenderNext(messages, options), options));
  Continuation next{.ids = std::move(encoded.ids)};
  if (encoded.opening > 0) {
    next.closing = encoded.opening;
  } else if (!next.ids.empty() && Contains(eos_tokens_, next.ids.front()) &&
             tokenizer_.TokenBytes(next.ids.front()).size() <=
                 encoded.opening_bytes) {
    next.closing = 1;  // an end that is no special token
  }
  if (next.closing > 0) next.end = next.ids[next.closing - 1];
  return next;
}

}  // namespace reprise
