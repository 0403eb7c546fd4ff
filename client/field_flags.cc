#include "client/field_flags.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace reprise {
namespace {

// A set of commands.
constexpr uint32_t Of(Command command) {
  return uint32_t{1} << static_cast<uint32_t>(command);
}
constexpr uint32_t kComplete = Of(Command::kComplete);
constexpr uint32_t kChat = Of(Command::kChat);
constexpr uint32_t kTurn = kComplete | kChat;
constexpr uint32_t kScore = Of(Command::kScore);
constexpr uint32_t kTokenize = Of(Command::kTokenize);
constexpr uint32_t kRewind = Of(Command::kSessionsRewind);
constexpr uint32_t kExport = Of(Command::kSessionsExport);
constexpr uint32_t kImport = Of(Command::kSessionsImport);
constexpr uint32_t kSavePreset = Of(Command::kPresetsSave);
constexpr uint32_t kOneSession =
    Of(Command::kSessionsShow) | Of(Command::kSessionsSuspend) |
    Of(Command::kSessionsResume) | Of(Command::kSessionsFork) | kRewind |
    Of(Command::kSessionsDelete) | kExport;

struct FieldFlag {
  std::string_view field;
  std::string_view flag;
  uint32_t commands;  // that set the field by this flag
};

constexpr FieldFlag kFlags[] = {
    {"sampling.temperature", "--temperature", kTurn},
    {"sampling.top_k", "--top-k", kTurn},
    {"sampling.top_p", "--top-p", kTurn},
    {"sampling.min_p", "--min-p", kTurn},
    {"sampling.typical_p", "--typical-p", kTurn},
    {"sampling.repetition_penalty", "--repetition-penalty", kTurn},
    {"sampling.presence_penalty", "--presence-penalty", kTurn},
    {"sampling.frequency_penalty", "--frequency-penalty", kTurn},
    {"sampling.penalty_decay", "--penalty-decay", kTurn},
    {"sampling.penalty_last_n", "--penalty-last-n", kTurn},
    {"sampling.logit_bias", "--logit-bias", kTurn},
    {"sampling.seed", "--seed", kTurn},
    {"stopping.max_new_tokens", "--max-tokens", kTurn},
    {"stopping.min_new_tokens", "--min-tokens", kTurn},
    {"stopping.stop", "--stop", kTurn},
    {"stopping.stop_token_ids", "--stop-token", kTurn},
    {"stopping.ignore_eos", "--ignore-eos", kTurn},
    {"stopping.include_stop", "--include-stop", kTurn},
    {"stopping.time_limit_ms", "--time-limit-ms", kTurn},
    {"on_cancel", "--roll-back-on-cancel", kTurn},
    {"allow_special_tokens", "--special-tokens", kTurn | kScore | kTokenize},
    {"session_id", "--session", kTurn},
    {"session_id", "--id", kImport},
    {"session_id", "ID", kSavePreset},
    {"preset", "--preset", kTurn},
    {"snapshot", "--load", kComplete},
    {"commit", "--no-commit", kComplete},
    {"n", "--n", kComplete},
    {"messages", "--messages", kComplete | kTokenize},
    {"output.logprobs", "--logprobs", kComplete},
    {"output.prompt_logprobs", "--prompt-logprobs", kComplete},
    {"output.token_ids", "--token-ids", kComplete},
    {"output.snapshot", "--save", kComplete},
    {"output.snapshot.elements", "--encoding", kComplete},
    {"logprobs", "--logprobs", kScore},
    {"request_id", "--request-id", kComplete | kScore},
    {"expected_revision", "--expected-revision", kComplete | kRewind | kExport},
    {"id", "ID", kOneSession},
    {"id", "--session", kChat},
    {"new_id", "NEW_ID", Of(Command::kSessionsFork)},
    {"revision", "REVISION", kRewind},
    {"seal.elements", "--encoding", kExport},
    {"seal.ttl_ms", "--ttl-ms", kExport},
    {"ttl_ms", "--ttl-ms", kImport},
    {"page_size", "--page-size", Of(Command::kSessionsList)},
    {"name", "NAME", kSavePreset | Of(Command::kPresetsDelete)},
};

// What a message says in the words of the interface behind its field.
constexpr FieldFlag kPhrases[] = {
    {"set commit to COMMIT_POLICY_NEVER", "add --no-commit", kComplete},
    {"leave it unset to turn it off", "leave it out to turn it off", kTurn},
    {"is more than max_new_tokens,", "is more than --max-tokens,", kTurn},
    {"a request without a session, preset or snapshot needs at least one token",
     "is empty, and there is no --session, --preset or --load to go on from",
     kComplete},
};

std::string_view FlagOf(Command command, std::string_view field) {
  for (const FieldFlag& known : kFlags) {
    if (known.field == field && (known.commands & Of(command)) != 0) {
      return known.flag;
    }
  }
  return "";
}

std::string Reworded(Command command, std::string text) {
  for (const FieldFlag& phrase : kPhrases) {
    const size_t at = text.find(phrase.field);
    if (at == std::string::npos || (phrase.commands & Of(command)) == 0) {
      continue;
    }
    text.replace(at, phrase.field.size(), phrase.flag);
  }
  return text;
}

}  // namespace

std::string NameFlag(Command command, const std::string& message) {
  const size_t end = message.find_first_of(":[ ");
  if (end == std::string::npos || message[end] == ' ') return message;
  const std::string flag(
      FlagOf(command, std::string_view(message).substr(0, end)));
  return Reworded(command, flag.empty() ? message : flag + message.substr(end));
}

}  // namespace reprise
