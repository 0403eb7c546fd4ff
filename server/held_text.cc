#include "server/held_text.h"

#include <utility>

#include "engine/base/log.h"

namespace reprise {

void HeldText::Clear() {
  CHECK(all_shown());
  text_.clear();
  tokens_.clear();
  shown_text_ = 0;
  shown_tokens_ = 0;
}

void HeldText::Add(SampledToken sampled, std::string_view text, bool whole,
                   uint64_t draws) {
  text_ += text;
  tokens_.push_back({.sampled = std::move(sampled),
                     .text_end = text_.size(),
                     .whole = whole,
                     .draws = draws});
}

size_t HeldText::TokensUpTo(size_t text_end) const {
  size_t count = tokens_.size();
  while (count > 0 && (!tokens_[count - 1].whole ||
                       tokens_[count - 1].text_end > text_end)) {
    --count;
  }
  return count;
}

void HeldText::Show(size_t text_end) {
  ShowRange(text_end, TokensUpTo(text_end));
}

void HeldText::ShowAll() { ShowRange(text_.size(), tokens_.size()); }

void HeldText::ShowRange(size_t text_end, size_t num_tokens) {
  if (request_.want_text) {
    delta_.text.append(text_, shown_text_, text_end - shown_text_);
  }
  shown_text_ = text_end;
  for (; shown_tokens_ < num_tokens; ++shown_tokens_) {
    const SampledToken& sampled = tokens_[shown_tokens_].sampled;
    if (request_.want_token_ids) delta_.token_ids.push_back(sampled.token);
    if (request_.logprobs.has_value()) delta_.logprobs.push_back(sampled);
  }
}

bool HeldText::has_delta() const {
  return !delta_.text.empty() || !delta_.token_ids.empty() ||
         !delta_.logprobs.empty();
}

DeltaEvent HeldText::TakeDelta() { return std::exchange(delta_, DeltaEvent()); }

}  // namespace reprise
