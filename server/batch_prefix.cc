// How turns use the prefix cache.
#include <optional>
#include <utility>

#include "server/batch.h"

namespace reprise {
namespace {

const char* ToText(PrefixMiss miss) {
  switch (miss) {
    case PrefixMiss::kShort:
      return "the prompt is too short";
    case PrefixMiss::kUnknown:
      return "no prompt began so lately";
    case PrefixMiss::kNotKept:
      return "a prompt began so, and its state is not kept";
    case PrefixMiss::kLogprobs:
      return "log-probabilities of the prompt are computed";
  }
  return "";
}

}  // namespace

// Puts the state of the prompt's beginning into the slot, if there is one.
// Returns where the prompt's states are to be kept.
std::vector<int64_t> Batch::StartFromPrefix(Turn& turn, SessionLease& lease) {
  SessionRecord& record = lease.record();
  if (!prefixes_.enabled() || record.position > 0 ||
      record.pending_token.has_value()) {
    return {};
  }
  PrefixFound found;
  if (turn.request.prompt_logprobs == PromptLogprobs::kNone) {
    found = prefixes_.Find(turn.request.tenant, turn.request.prompt);
  } else {
    found.miss = PrefixMiss::kLogprobs;
  }
  const bool hit = found.tokens > 0;
  metrics_.ObservePrefix(turn.usage.prompt_tokens, found.tokens,
                         hit ? std::nullopt : std::optional(found.miss));
  if (!hit) {
    std::string& reason = turn.started.resume_reason;
    if (!reason.empty()) reason += "; ";  // a slot is no reason
    reason += "prefix cache: ";
    reason += ToText(found.miss);
    return std::move(found.save);
  }
  lease.MarkChanged();
  prefixes_.RestoreFound(lease.slot());
  record.position = found.tokens;
  turn.prefix_tokens = found.tokens;
  turn.usage.cached_tokens = found.tokens;
  turn.source = ResumeSource::kPrefix;
  turn.started.cached_tokens = found.tokens;
  turn.started.resumed_from = turn.source;
  turn.started.resume_reason = "the prompt begins as another one did";
  return std::move(found.save);
}

void Batch::KeepPrefix(Completion& completion) {
  const TurnRequest& request = completion.turn.request;
  int64_t tokens = 0;
  const std::byte* slot = nullptr;
  if (!completion.sequence->TakeSavePoint(&tokens, &slot)) return;
  prefixes_.Put(request.tenant, request.prompt, tokens, slot);
  metrics_.SetSnapshotStore("prefix", static_cast<double>(prefixes_.bytes()),
                            static_cast<double>(prefixes_.capacity_bytes()));
}

}  // namespace reprise
