#include "server/turn_request.h"

#include <algorithm>
#include <span>
#include <utility>

namespace reprise {

int64_t PromptTokens(const TurnRequest& request) {
  size_t tokens = request.prompt.size();
  if (request.messages.has_value()) {
    const auto& [begin, next] = *request.messages;
    if (begin.ok()) tokens = std::max(tokens, begin->size());
    if (next.ok()) tokens = std::max(tokens, next->ids.size());
  }
  return static_cast<int64_t>(tokens);
}

absl::Status SettlePrompt(const SessionRecord& session, TurnRequest& request) {
  if (!request.messages.has_value()) return absl::OkStatus();
  MessagePrompts messages = *std::move(request.messages);
  request.messages.reset();
  if (!session.pending_token.has_value()) {
    if (!messages.begin.ok()) return messages.begin.status();
    request.prompt = *std::move(messages.begin);
    return absl::OkStatus();
  }
  if (!messages.next.ok()) return messages.next.status();
  const std::span<const int32_t> tokens =
      messages.next->TokensToFeed(*session.pending_token);
  request.prompt.assign(tokens.begin(), tokens.end());
  return absl::OkStatus();
}

}  // namespace reprise
