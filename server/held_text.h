// What a completion sampled lately, and how much of it was shown: text waits
// while it may be the beginning of a stop string, tokens and log-probabilities
// wait for the end of their text.
#ifndef SERVER_HELD_TEXT_H_
#define SERVER_HELD_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sampler.h"
#include "server/token_stream.h"
#include "server/turn_request.h"

namespace reprise {

// Offsets are in the text since the last Clear. Used by one thread.
class HeldText {
 public:
  struct Token {
    SampledToken sampled;
    size_t text_end = 0;  // of its text
    bool whole = false;   // no character was unfinished after it
    uint64_t draws = 0;   // random numbers used after it
  };

  // `request` says what to show, and must outlive this.
  explicit HeldText(const TurnRequest& request) : request_(request) {}

  // Forgets what was shown. CHECKs that it was everything.
  void Clear();
  // Appends a token and the text that became whole with it.
  void Add(SampledToken sampled, std::string_view text, bool whole,
           uint64_t draws);

  const std::string& text() const { return text_; }
  const std::vector<Token>& tokens() const { return tokens_; }
  size_t shown() const { return shown_text_; }  // bytes of text()
  bool all_shown() const {
    return shown_text_ == text_.size() && shown_tokens_ == tokens_.size();
  }
  // How many tokens end at `text_end` or before, and not inside a character.
  size_t TokensUpTo(size_t text_end) const;

  // Shows the text up to `text_end` and the tokens up to there.
  void Show(size_t text_end);
  // Shows everything, tokens with unfinished characters too.
  void ShowAll();
  // What was shown since the last call.
  bool has_delta() const;
  DeltaEvent TakeDelta();

 private:
  void ShowRange(size_t text_end, size_t num_tokens);

  const TurnRequest& request_;
  std::string text_;
  std::vector<Token> tokens_;
  size_t shown_text_ = 0;
  size_t shown_tokens_ = 0;
  DeltaEvent delta_;
};

}  // namespace reprise

#endif  // SERVER_HELD_TEXT_H_
