#include "server/inference_service_messages.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/json_text.h"
#include "engine/template/chat_format.h"
#include "server/inference_service_request.h"

namespace reprise {
namespace {

template <typename... Parts>
absl::Status RefuseMessages(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("messages", parts...));
}

bool IsRole(std::string_view role) {
  if (role.empty() || role.size() > kMaxRoleBytes) return false;
  return std::all_of(role.begin(), role.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' ||
           c == '-' || c == '.';
  });
}

absl::StatusOr<std::vector<ChatMessage>> ReadMessages(
    const v1::Messages& request, const ServiceContext& context) {
  const auto& list = request.messages();
  if (list.empty() || list.size() > kMaxMessages) {
    return RefuseMessages(": ", list.size(), " messages are not in [1, ",
                          kMaxMessages, "]");
  }
  std::vector<ChatMessage> messages;
  size_t bytes = 0;
  for (int i = 0; i < list.size(); ++i) {
    if (!IsRole(list[i].role())) {
      return RefuseMessages("[", i, "].role: ", Quoted(list[i].role()),
                            " is not 1 to ", kMaxRoleBytes,
                            " of A-Z a-z 0-9 . _ -");
    }
    bytes += list[i].content().size();
    messages.push_back({list[i].role(), list[i].content()});
  }
  if (bytes > kMaxContentBytes) {
    context.metrics.CountRejected(RejectReason::kTooLarge);
    return RefuseMessages(": ", bytes, " bytes of content are more than ",
                          kMaxContentBytes);
  }
  return messages;
}

absl::Status OfMessages(const absl::Status& status,
                        const ServiceContext& context) {
  if (status.ok()) return status;
  if (absl::IsResourceExhausted(status)) {
    return RefuseTokens("messages", context);
  }
  return absl::Status(status.code(),
                      absl::StrCat("messages: ", status.message()));
}

ChatOptions OptionsOf(bool allow_special, const ServiceContext& context) {
  return {.allow_special = allow_special,
          .now_unix_ms = context.clock.UnixMs(),
          .max_tokens = static_cast<size_t>(context.options.max_prompt_tokens)};
}

// What ends an answer, beside what the request asks for.
void ApplyAnswerEnds(const ChatFormat& chat, TurnRequest& turn) {
  turn.eos_tokens = chat.eos_tokens();
  for (const std::string& stop : chat.stop()) {
    const auto known = std::find(turn.stop.begin(), turn.stop.end(), stop);
    if (known == turn.stop.end()) turn.stop.push_back(stop);
  }
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> MessagesToPrompt(
    const v1::Messages& messages, bool allow_special,
    const ServiceContext& context) {
  RETURN_IF_ERROR(OfMessages(context.chat.status(), context));
  ASSIGN_OR_RETURN(const std::vector<ChatMessage> read,
                   ReadMessages(messages, context));
  absl::StatusOr<std::vector<int32_t>> prompt =
      context.chat.Begin(read, OptionsOf(allow_special, context));
  RETURN_IF_ERROR(OfMessages(prompt.status(), context));
  return prompt;
}

absl::Status ApplyMessages(const v1::GenerateRequest& request,
                           const ServiceContext& context, TurnRequest& turn) {
  if (!request.stopping().ignore_eos()) ApplyAnswerEnds(context.chat, turn);
  const bool allow_special = request.allow_special_tokens();
  if (!turn.session.has_value() && !turn.preset.has_value() &&
      !turn.snapshot.has_value()) {
    ASSIGN_OR_RETURN(turn.prompt, MessagesToPrompt(request.messages(),
                                                   allow_special, context));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(OfMessages(context.chat.status(), context));
  ASSIGN_OR_RETURN(const std::vector<ChatMessage> read,
                   ReadMessages(request.messages(), context));
  const ChatOptions options = OptionsOf(allow_special, context);
  MessagePrompts prompts{context.chat.Begin(read, options),
                         absl::UnknownError("not tried yet")};
  if (absl::IsResourceExhausted(prompts.begin.status())) {
    return OfMessages(prompts.begin.status(), context);
  }
  prompts.next = context.chat.Continue(read, options);
  if (absl::IsResourceExhausted(prompts.next.status())) {
    return OfMessages(prompts.next.status(), context);
  }
  // One of them may be refused: a template may want a conversation to begin
  // with a user's message, say. The session decides whether it is needed.
  if (!prompts.begin.ok()) {
    prompts.begin = OfMessages(prompts.begin.status(), context);
  }
  if (!prompts.next.ok()) {
    prompts.next = OfMessages(prompts.next.status(), context);
    if (!prompts.begin.ok()) return prompts.begin.status();
  }
  turn.messages = std::move(prompts);
  return absl::OkStatus();
}

}  // namespace reprise
