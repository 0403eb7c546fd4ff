#include "server/sequence.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "engine/base/log.h"

namespace reprise {
namespace {

bool AllSpecial(const Tokenizer& tokenizer, std::span<const int32_t> tokens) {
  return std::all_of(tokens.begin(), tokens.end(), [&tokenizer](int32_t token) {
    return tokenizer.IsSpecial(token);
  });
}

}  // namespace

struct Sequence::Copy {
  StateUndo state;
  SessionRecord record;
};

Sequence::~Sequence() = default;

Sequence::Sequence(const TurnRequest& request, const Tokenizer& tokenizer,
                   const StateLayout& layout, SessionLease lease,
                   std::vector<int64_t> save)
    : request_(request),
      tokenizer_(tokenizer),
      layout_(layout),
      sampling_(request.sampling),
      lease_(std::move(lease)),
      decoder_(tokenizer),
      save_(std::move(save)),
      held_(request) {
  if (request.min_new_tokens > 0) {
    banned_ = request.eos_tokens;
    banned_.insert(banned_.end(), request.stop_tokens.begin(),
                   request.stop_tokens.end());
  }
  SessionRecord& record = lease_.record();
  lease_.MarkChanged();
  had_pending_ = record.pending_token.has_value();
  prefix_ = had_pending_ ? 0 : static_cast<size_t>(record.position);
  start_position_ = had_pending_ ? record.position : 0;
  GrowWindow(sampling_, record.sampler);
  for (size_t i = 0; i < prefix_; ++i) {  // the sampler has not seen them
    RememberToken(request.prompt[i], static_cast<int64_t>(i),
                  sampling_.penalty_decay, record.sampler);
  }
  // Input begins a text of its own, and does not complete a character that the
  // last turn left unfinished.
  if (!request.prompt.empty()) record.pending_text.clear();
  std::vector<int32_t> tokens;
  tokens.reserve(request.prompt.size() + 1);
  if (had_pending_) tokens.push_back(*record.pending_token);
  const std::span prompt = std::span(request.prompt).subspan(prefix_);
  tokens.insert(tokens.end(), prompt.begin(), prompt.end());
  StartFeed(Stage::kPrompt, std::move(tokens), had_pending_ ? 1 : 0);
}

Sequence::Sequence(const Sequence& first, int32_t index, SessionLease lease)
    : request_(first.request_),
      tokenizer_(first.tokenizer_),
      layout_(first.layout_),
      sampling_(first.sampling_),
      banned_(first.banned_),
      lease_(std::move(lease)),
      decoder_(first.decoder_),
      index_(index),
      start_position_(first.start_position_),
      had_pending_(first.had_pending_),
      stage_(first.stage_),
      prompt_read_(true),
      held_(first.request_),
      reason_(first.reason_) {
  sampling_.seed += static_cast<uint64_t>(index);
}

std::unique_ptr<Sequence> Sequence::Fork(int32_t index, SessionLease lease) {
  CHECK(prompt_read_ && generated_ == 0);
  lease.MarkChanged();
  CopyState(layout_, lease_.record().position, lease_.slot(), lease.slot());
  lease.record() = lease_.record();
  return std::unique_ptr<Sequence>(
      new Sequence(*this, index, std::move(lease)));
}

int64_t Sequence::prefill_tokens() const {
  if (stage_ != Stage::kPrompt && stage_ != Stage::kRepair) return 0;
  const auto left = static_cast<int64_t>(feed_.size() - 1 - fed_);
  if (save_.empty()) return left;
  return std::min(left, save_.front() - lease_.record().position);
}

bool Sequence::TakeSavePoint(int64_t* tokens, const std::byte** slot) {
  const int64_t position = lease_.record().position;
  if (save_.empty() || save_.front() != position) return false;
  save_.erase(save_.begin());
  *tokens = position;
  *slot = lease_.slot();
  return true;
}

// ---- Prefill ---------------------------------------------------------------

void Sequence::StartFeed(Stage stage, std::vector<int32_t> tokens,
                         size_t first_new) {
  CHECK(!tokens.empty());
  stage_ = stage;
  feed_ = std::move(tokens);
  fed_ = 0;
  first_new_ = first_new;
  if (feed_.size() == 1) EndFeed();
}

void Sequence::AdvanceFeed(int64_t rows, MatrixView<float> logits) {
  SessionRecord& record = lease_.record();
  for (int64_t row = 0; row < rows; ++row, ++fed_) {
    if (fed_ >= first_new_) {
      RememberToken(feed_[fed_], record.position + row, sampling_.penalty_decay,
                    record.sampler);
    }
  }
  record.position += rows;
  if (logits.rows > 0 && !ScorePrompt(logits)) return;
  if (fed_ + 1 == feed_.size()) EndFeed();
}

// `logits` are those of the rows that were fed last. False if they are no
// numbers, which ends the sequence.
bool Sequence::ScorePrompt(MatrixView<float> logits) {
  const auto next = static_cast<int64_t>(fed_) - logits.rows + 1;
  std::vector<SampledToken> scores =
      ScoreTokens(logits, std::span(feed_).subspan(next, logits.rows),
                  request_.logprobs.value_or(0));
  for (SampledToken& score : scores) {
    if (!std::isfinite(score.logprob)) {
      Fail(absl::InternalError("the model's output is not finite"));
      return false;
    }
    prompt_logprobs_.push_back(std::move(score));
  }
  return true;
}

// The last token is the pending one from here on.
void Sequence::EndFeed() {
  SessionRecord& record = lease_.record();
  // Special tokens are no part of the text: behind nothing else, it begins.
  const bool begins =
      start_position_ == 0 && AllSpecial(tokenizer_, feed_) &&
      AllSpecial(tokenizer_, std::span(request_.prompt).first(prefix_));
  record.pending_token = feed_.back();
  if (feed_.size() > first_new_) {
    RememberToken(feed_.back(), record.position, sampling_.penalty_decay,
                  record.sampler);
  }
  feed_.clear();
  if (stage_ == Stage::kRepair) {
    stage_ = Stage::kEnded;
    return;
  }
  prompt_read_ = true;
  decoder_ = begins ? StreamDecoder::AtStart(tokenizer_)
                    : StreamDecoder(tokenizer_, record.pending_text);
  stage_ = Stage::kDecode;
  if (request_.max_new_tokens == 0) End(FinishReason::kLength);
}

// ---- Steps -----------------------------------------------------------------

StepSegment Sequence::NextSegment(int64_t rows) {
  const SessionRecord& record = lease_.record();
  if (stage_ == Stage::kDecode) {
    CHECK(rows == 1);
    KeepCopy();
    return {.tokens = {&*record.pending_token, 1},
            .position = record.position,
            .slot = lease_.slot(),
            .logits = LogitsFor::kLastRow};
  }
  CHECK(rows >= 1 && rows <= prefill_tokens());
  const bool score = stage_ == Stage::kPrompt &&
                     request_.prompt_logprobs != PromptLogprobs::kNone;
  return {.tokens = std::span<const int32_t>(feed_).subspan(
              fed_, static_cast<size_t>(rows)),
          .position = record.position,
          .slot = lease_.slot(),
          .logits = score ? LogitsFor::kAllRows : LogitsFor::kNone};
}

void Sequence::Sample(std::span<float> logits, Sampler& sampler) {
  SessionRecord& record = lease_.record();
  SampleOptions options;
  options.logprob = request_.logprobs.has_value();
  options.top_logprobs = request_.logprobs.value_or(0);
  if (generated_ < request_.min_new_tokens) options.banned = banned_;
  sampled_ = sampler.Sample(logits, sampling_, options, record.position + 1,
                            record.sampler);
}

void Sequence::Advance(int64_t rows, MatrixView<float> logits) {
  if (stage_ != Stage::kDecode) {
    AdvanceFeed(rows, logits);
    return;
  }
  lease_.record().position += 1;
  CHECK(sampled_.has_value());
  SampledToken sampled = *std::exchange(sampled_, std::nullopt);
  if (!sampled.possible) {
    Fail(absl::InternalError("the model's output is not finite"));
    return;
  }
  Accept(std::move(sampled));
}

void Sequence::Interrupt(FinishReason reason, bool keep) {
  CHECK(stage_ == Stage::kPrompt || stage_ == Stage::kDecode);
  discard_ = !keep || stage_ == Stage::kPrompt;
  held_.ShowAll();
  End(reason);
}

// ---- Tokens ----------------------------------------------------------------

// If nothing is held back, all before this point is final: forgets it, and
// remembers where it ends. That is never inside a character, but for one that
// the turn before left unfinished, since its tokens are held back.
void Sequence::KeepCopy() {
  if (!held_.all_shown()) return;
  held_.Clear();
  const bool kept = keeps_session() || request_.seal.has_value();
  if (!kept || request_.stop.empty()) return;
  if (copy_ == nullptr) copy_ = std::make_unique<Copy>();
  copy_->state.Save(layout_, lease_.record().position, lease_.slot());
  copy_->record = lease_.record();
  copy_->record.pending_text = decoder_.pending();
}

void Sequence::Accept(SampledToken sampled) {
  SessionRecord& record = lease_.record();
  const int32_t token = sampled.token;
  record.pending_token = token;
  RememberToken(token, record.position, sampling_.penalty_decay,
                record.sampler);
  ++generated_;
  const bool ends = EndsTurn(token);
  const std::string text = ends ? "" : decoder_.Push(token);
  held_.Add(std::move(sampled), text, decoder_.pending().empty(),
            record.sampler.draws);
  if (ends) {
    held_.ShowAll();
    End(matched_token_.has_value() ? FinishReason::kStopToken
                                   : FinishReason::kStop);
    return;
  }
  // Text of the tokens before min_new_tokens takes no part in the search.
  size_t text_end = held_.text().size();
  if (generated_ >= request_.min_new_tokens) {
    const StopScan scan = ScanForStop(
        std::string_view(held_.text()).substr(held_.shown()), request_.stop);
    if (scan.match.has_value()) {
      StopAt(*scan.match);
      return;
    }
    text_end = held_.shown() + scan.undecided;
  }
  held_.Show(text_end);
  if (generated_ >= request_.max_new_tokens) {
    held_.ShowAll();
    End(FinishReason::kLength);
  }
}

// Whether `token` is one that ends the turn. It is part of the session, as
// chat templates have it, but its text is not shown.
bool Sequence::EndsTurn(int32_t token) {
  const auto is_in = [token](const std::vector<int32_t>& tokens) {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  };
  if (is_in(request_.stop_tokens)) {
    matched_token_ = token;
    return true;
  }
  return is_in(request_.eos_tokens);
}

// ---- Stop strings ----------------------------------------------------------

// The session ends where the text that is shown ends: at `cut`. The tokens that
// end there or before stay as they are.
void Sequence::StopAt(const StopMatch& match) {
  matched_stop_ = request_.stop[match.stop];
  const size_t cut =
      held_.shown() + (request_.include_stop ? match.end : match.begin);
  held_.Show(cut);
  const size_t kept = held_.TokensUpTo(cut);
  const bool at_end =
      kept == held_.tokens().size() && cut == held_.text().size();
  if (copy_ == nullptr || at_end) {
    End(FinishReason::kStopString);
    return;
  }
  GoBack(kept, cut);
}

void Sequence::GoBack(size_t kept, size_t cut) {
  reason_ = FinishReason::kStopString;
  const size_t kept_end = kept == 0 ? 0 : held_.tokens()[kept - 1].text_end;
  std::string_view rest =
      std::string_view(held_.text()).substr(kept_end, cut - kept_end);
  // The first character may have begun in the turn before: its first bytes are
  // in the session already.
  if (kept == 0 && !copy_->record.pending_text.empty() && !rest.empty()) {
    const std::string& begun = copy_->record.pending_text;
    const std::string replaced = ShowUnfinished(tokenizer_, begun);
    if (rest.starts_with(begun)) {
      rest.remove_prefix(begun.size());
    } else if (rest.starts_with(replaced)) {
      rest.remove_prefix(replaced.size());
    }
  }
  absl::StatusOr<std::vector<int32_t>> tokens = EncodeExactly(tokenizer_, rest);
  if (!tokens.ok()) {
    Fail(tokens.status());
    return;
  }
  std::vector<int32_t> feed = {*copy_->record.pending_token};
  for (size_t i = 0; i < kept; ++i) {
    feed.push_back(held_.tokens()[i].sampled.token);
  }
  feed.insert(feed.end(), tokens->begin(), tokens->end());
  SessionRecord& record = lease_.record();
  copy_->state.Restore(layout_, lease_.slot());
  record = copy_->record;
  if (kept > 0) record.sampler.draws = held_.tokens()[kept - 1].draws;
  if (kept > 0 || cut > 0) record.pending_text.clear();
  copy_ = nullptr;
  StartFeed(Stage::kRepair, std::move(feed), /*first_new=*/1);
}

// ---- The end ---------------------------------------------------------------

void Sequence::End(FinishReason reason) {
  reason_ = reason;
  stage_ = Stage::kEnded;
  if (prompt_read_) lease_.record().pending_text = decoder_.pending();
  copy_ = nullptr;
}

void Sequence::Fail(absl::Status status) {
  status_ = std::move(status);
  discard_ = true;
  End(FinishReason::kStop);
}

bool Sequence::keeps_session() const {
  return request_.session.has_value() && request_.commit;
}

// A turn that added nothing makes no revision.
bool Sequence::changed() const {
  const SessionRecord& record = lease_.record();
  const bool added = record.position != start_position_ ||
                     had_pending_ != record.pending_token.has_value();
  return !discard_ && added;
}

bool Sequence::to_commit() const { return keeps_session() && changed(); }

bool Sequence::to_seal() const {
  return request_.seal.has_value() && changed();
}

bool Sequence::has_delta() const {
  return held_.has_delta() ||
         (StreamsPrompt(request_) && !prompt_logprobs_.empty());
}

DeltaEvent Sequence::TakeDelta() {
  DeltaEvent delta = held_.TakeDelta();
  if (StreamsPrompt(request_) && !prompt_logprobs_.empty()) {
    delta.logprobs = std::exchange(prompt_logprobs_, {});
  }
  delta.index = index_;
  return delta;
}

std::vector<SampledToken> Sequence::TakePromptLogprobs() {
  return std::move(prompt_logprobs_);
}

}  // namespace reprise
