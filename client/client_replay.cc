#include "client/client_replay.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

template <typename... Parts>
absl::Status Differs(const Parts&... parts) {
  return absl::DataLossError(
      absl::StrCat("the answer cannot be continued: ", parts...));
}

// Takes off `next` what `heard` has from `again` on, moves `again` past it, and
// adds the rest of `next` to `heard`. False if they differ.
template <typename List>
bool Join(List& heard, size_t& again, List& next) {
  const size_t known = std::min(heard.size() - again, next.size());
  const auto end = next.begin() + static_cast<ptrdiff_t>(known);
  if (!std::equal(next.begin(), end,
                  heard.begin() + static_cast<ptrdiff_t>(again))) {
    return false;
  }
  next.erase(next.begin(), end);
  heard.insert(heard.end(), next.begin(), next.end());
  again += known + next.size();
  return true;
}

}  // namespace

void AnswerReplay::Begin(std::optional<uint64_t> revision) {
  revision_ = revision;
  for (auto& [index, heard] : heard_) {
    heard.text_again = heard.token_ids_again = heard.logprobs_again = 0;
  }
}

absl::StatusOr<std::optional<v1::GenerateResponse>> AnswerReplay::Add(
    const v1::GenerateResponse& message) {
  v1::GenerateResponse rest = message;
  bool is_new = true;
  if (message.has_started()) {
    ASSIGN_OR_RETURN(is_new, AddStarted(message.started()));
  } else if (message.has_delta()) {
    ASSIGN_OR_RETURN(is_new, AddDelta(*rest.mutable_delta()));
  } else if (message.has_finished()) {
    ASSIGN_OR_RETURN(is_new, AddFinished(message.finished()));
  }
  if (!is_new) return std::nullopt;
  return rest;
}

absl::StatusOr<bool> AnswerReplay::AddStarted(const v1::Started& started) {
  if (!started_.has_value()) {
    started_ = started;
    return true;
  }
  if (started.model_fingerprint() != started_->model_fingerprint()) {
    return Differs("it was begun with the model ",
                   started_->model_fingerprint(), ", and this server has ",
                   started.model_fingerprint());
  }
  if (started.seed() != started_->seed()) {
    return Differs("it was begun with the seed ", started_->seed(),
                   ", and this one has ", started.seed());
  }
  const uint64_t revision = revision_.value_or(started_->revision());
  if (started.revision() != revision) {
    return Differs("session ", started.session_id(), " was at revision ",
                   revision, ", and is at ", started.revision(), " now");
  }
  return false;
}

absl::StatusOr<bool> AnswerReplay::AddDelta(v1::Delta& delta) {
  Heard& heard = heard_[delta.index()];
  const bool known = heard.text_again < heard.text.size() ||
                     heard.token_ids_again < heard.token_ids.size();
  std::vector<int32_t> ids(delta.token_ids().begin(), delta.token_ids().end());
  std::vector<std::string> logprobs;
  for (const v1::TokenLogprobs& token : delta.logprobs()) {
    logprobs.push_back(token.SerializeAsString());
  }
  const int logprobs_before = delta.logprobs_size();
  const size_t at = heard.text_again;
  if (!Join(heard.text, heard.text_again, *delta.mutable_text())) {
    return Differs("text after byte ", at, " of what was heard is another one");
  }
  if (!Join(heard.token_ids, heard.token_ids_again, ids)) {
    return Differs("token ids are other ones than were heard");
  }
  if (!Join(heard.logprobs, heard.logprobs_again, logprobs)) {
    return Differs("log-probabilities are other ones than were heard");
  }
  delta.mutable_token_ids()->Assign(ids.begin(), ids.end());
  delta.mutable_logprobs()->DeleteSubrange(
      0, logprobs_before - static_cast<int>(logprobs.size()));
  return !known || !delta.text().empty() || !ids.empty() || !logprobs.empty();
}

absl::StatusOr<bool> AnswerReplay::AddFinished(const v1::Finished& finished) {
  Heard& heard = heard_[finished.index()];
  if (heard.text_again < heard.text.size() ||
      heard.token_ids_again < heard.token_ids.size()) {
    return Differs("it ends after ", heard.text_again, " bytes, and ",
                   heard.text.size(), " were heard before");
  }
  if (heard.finished) return false;
  heard.finished = true;
  ++finished_;
  return true;
}

}  // namespace reprise
