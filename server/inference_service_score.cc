#include "server/inference_service_score.h"

#include <algorithm>
#include <cmath>
#include <variant>
#include <vector>

#include "server/inference_service_request.h"
#include "server/inference_service_response.h"

namespace reprise {
namespace {

// With 20 alternatives each, some 30 bytes apiece, that is 600 KB: a client
// with gRPC's default limit takes 4 MiB.
constexpr int64_t kMaxTokensOfMessage = 1024;

}  // namespace

absl::StatusOr<TurnRequest> ScoreCall::MakeTurn() {
  return ToTurnRequest(*request_, context_);
}

bool ScoreCall::PutEvent(StreamEvent& event, v1::ScoreResponse& message) {
  bool whole = true;
  if (const auto* started = std::get_if<StartedEvent>(&event)) {
    text_tokens_ = started->prompt_tokens;
  } else if (auto* delta = std::get_if<DeltaEvent>(&event)) {
    whole = PutTokens(*delta, message);
  } else if (const auto* finished = std::get_if<FinishedEvent>(&event)) {
    Fill(finished->timings, *message.mutable_timings());
  }
  v1::ScoreTotals& totals = *message.mutable_totals();
  totals.set_text_tokens(static_cast<uint64_t>(text_tokens_));
  totals.set_scored_tokens(static_cast<uint64_t>(scored_tokens_));
  totals.set_scored_bytes(static_cast<uint64_t>(scored_bytes_));
  totals.set_logprob(logprob_);
  if (scored_tokens_ > 0) {
    totals.set_perplexity(
        std::exp(-logprob_ / static_cast<double>(scored_tokens_)));
  }
  return whole;
}

bool ScoreCall::PutTokens(DeltaEvent& delta, v1::ScoreResponse& message) {
  std::vector<SampledToken>& tokens = delta.logprobs;
  const int64_t room = kMaxTokensOfMessage - message.tokens_size();
  const auto end = tokens.begin() + std::min(room, std::ssize(tokens));
  for (auto token = tokens.begin(); token != end; ++token) {
    Fill(*token, context_.tokenizer, *message.add_tokens());
    ++scored_tokens_;
    scored_bytes_ += std::ssize(context_.tokenizer.TokenBytes(token->token));
    logprob_ += token->logprob;
  }
  tokens.erase(tokens.begin(), end);
  return tokens.empty();
}

}  // namespace reprise
