#include "client/field_flags.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>

namespace reprise {
namespace {

struct FieldFlag {
  std::string_view field;
  std::string_view flag;
};

// Those whose flag is not the field's own name with other dashes.
constexpr FieldFlag kFlags[] = {
    {"stopping.max_new_tokens", "--max-tokens"},
    {"stopping.min_new_tokens", "--min-tokens"},
    {"stopping.stop_token_ids", "--stop-token"},
    {"commit", "--no-commit"},
};

// What one command calls otherwise than another, or has no flag for.
struct CommandFlag {
  Command command;
  FieldFlag names;
};
constexpr CommandFlag kFlagsOfOne[] = {
    {Command::kComplete, {"session_id", "--session"}},
    {Command::kComplete, {"snapshot", "--load"}},
    {Command::kComplete, {"output.snapshot", "--save"}},
    {Command::kComplete, {"output.snapshot.elements", "--encoding"}},
    {Command::kChat, {"session_id", "--session"}},
    {Command::kScore, {"session_id", "--session"}},
    {Command::kSessionsExport, {"seal.elements", "--encoding"}},
    {Command::kSessionsExport, {"seal.ttl_ms", "--ttl-ms"}},
    {Command::kSessionsImport, {"session_id", "--id"}},
    {Command::kSessionsImport, {"ttl_ms", "--ttl-ms"}},
};

constexpr std::string_view kSameName[] = {
    "sampling.temperature",
    "sampling.top_k",
    "sampling.top_p",
    "sampling.min_p",
    "sampling.typical_p",
    "sampling.repetition_penalty",
    "sampling.presence_penalty",
    "sampling.frequency_penalty",
    "sampling.penalty_decay",
    "sampling.penalty_last_n",
    "sampling.logit_bias",
    "sampling.seed",
    "stopping.stop",
    "stopping.ignore_eos",
    "stopping.include_stop",
    "stopping.time_limit_ms",
    "output.logprobs",
    "output.prompt_logprobs",
    "output.token_ids",
    "messages",
    "preset",
    "expected_revision",
    "request_id",
    "logprobs",
    "n",
};

std::string FlagOf(Command command, std::string_view field) {
  for (const CommandFlag& known : kFlagsOfOne) {
    if (known.command == command && known.names.field == field) {
      return std::string(known.names.flag);
    }
  }
  for (const FieldFlag& known : kFlags) {
    if (known.field == field) return std::string(known.flag);
  }
  if (std::find(std::begin(kSameName), std::end(kSameName), field) ==
      std::end(kSameName)) {
    return "";
  }
  std::string flag = "--";
  flag += field.substr(field.find('.') + 1);  // npos + 1 is 0
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

}  // namespace

std::string NameFlag(Command command, const std::string& message) {
  const size_t end = message.find_first_of(":[ ");
  if (end == std::string::npos || message[end] == ' ') return message;
  const std::string flag =
      FlagOf(command, std::string_view(message).substr(0, end));
  return flag.empty() ? message : flag + message.substr(end);
}

}  // namespace reprise
