#include "tests/integration/crash_record.h"

#include <utility>

namespace reprise {

std::string ToString(const Lineage& lineage) {
  std::string text;
  for (const CrashTurn& turn : lineage) {
    text += std::to_string(turn.prompt) + "." + std::to_string(turn.seed) +
            "." + std::to_string(turn.tokens) + ";";
  }
  return text;
}

v1::GenerateRequest RequestOf(const std::string& session,
                              const CrashTurn& turn) {
  v1::GenerateRequest request =
      SessionRequest(session, kCrashPrompts[turn.prompt], turn.tokens);
  request.mutable_sampling()->set_seed(turn.seed);
  return request;
}

void CrashRecord::Become(uint64_t revision, const Lineage& lineage) {
  exists_ = true;
  revision_ = revision;
  states_[revision] = lineage;
  pending_.reset();
}

std::string CrashRecord::Acknowledge(uint64_t revision) {
  const PendingCall call = *std::exchange(pending_, std::nullopt);
  if (call.kind == PendingCall::Kind::kDelete) {
    *this = CrashRecord(*prompt_tokens_);
    return "";
  }
  const bool fork = call.kind == PendingCall::Kind::kFork;
  const uint64_t expected = fork ? call.revision : revision_ + 1;
  if (revision != expected) {
    return "acknowledged at revision " + std::to_string(revision) + ", not " +
           std::to_string(expected);
  }
  Lineage next = call.lineage;
  if (call.kind == PendingCall::Kind::kTurn) {
    next = lineage();
    next.push_back(call.turn);
  }
  Become(revision, next);
  return "";
}

uint64_t CrashRecord::NumTokens(const Lineage& lineage) const {
  uint64_t tokens = 0;
  for (const CrashTurn& turn : lineage) {
    tokens += (*prompt_tokens_)[turn.prompt] + turn.tokens;
  }
  return tokens;
}

std::string CrashRecord::Settle(const v1::Session* session) {
  const std::optional<PendingCall> call = std::exchange(pending_, std::nullopt);
  const auto is = [&](PendingCall::Kind kind) {
    return call.has_value() && call->kind == kind;
  };
  if (session == nullptr) {
    const bool may = !exists_ || is(PendingCall::Kind::kDelete);
    *this = CrashRecord(*prompt_tokens_);
    return may ? "" : "it is lost";
  }
  const std::string is_at = "it is at revision " +
                            std::to_string(session->revision()) + " with " +
                            std::to_string(session->tokens()) + " tokens";
  const std::string was_at =
      exists_ ? ", was acknowledged at " + std::to_string(revision_)
              : ", was not there, or was deleted";
  Lineage state;
  if (exists_ && session->revision() == revision_) {
    state = lineage();
  } else if (is(PendingCall::Kind::kFork) &&
             session->revision() == call->revision) {
    state = call->lineage;
  } else if (is(PendingCall::Kind::kRewind) &&
             session->revision() == revision_ + 1) {
    state = call->lineage;
  } else if (is(PendingCall::Kind::kTurn) &&
             session->revision() == revision_ + 1) {
    // A turn that was cancelled keeps what was streamed of it.
    CrashTurn turn = call->turn;
    turn.tokens = 0;
    state = lineage();
    state.push_back(turn);
    const uint64_t least = NumTokens(state);
    if (session->tokens() >= least) {
      state.back().tokens = static_cast<uint32_t>(session->tokens() - least);
    }
    if (state.back().tokens > call->turn.tokens) return is_at + was_at;
  } else {
    return is_at + was_at;
  }
  if (session->tokens() != NumTokens(state)) {
    return is_at + ", should have " + std::to_string(NumTokens(state));
  }
  Become(session->revision(), state);
  return "";
}

}  // namespace reprise
