// The regular expressions that tokenizers split text with, through PCRE2.
#ifndef ENGINE_TEXT_PATTERN_H_
#define ENGINE_TEXT_PATTERN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct pcre2_real_code_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;

namespace reprise {

// What all the patterns together may spend on one text: 50 million steps and
// 256 for each of its bytes, where a step is one item of a pattern tried or one
// byte passed over. The patterns of GPT-2, Llama 3 and GPT-4o spend 1 to 5 a
// byte, on prose and on long runs of one character. This bounds the time
// whatever the pattern and the text are, and does so equally on every machine;
// PCRE2's own limits do not count all of the work. Used by one thread at a
// time.
class PatternBudget {
 public:
  explicit PatternBudget(size_t text_bytes);
  ~PatternBudget();
  PatternBudget(const PatternBudget&) = delete;
  PatternBudget& operator=(const PatternBudget&) = delete;

 private:
  friend class TextPattern;
  // Called by PCRE2 before each item; not 0 ends the match.
  template <typename CalloutBlock>
  static int Charge(CalloutBlock* block, void* budget);

  int64_t steps_left_;
  size_t last_position_ = 0;
  pcre2_real_match_context_8* context_;
  pcre2_real_match_data_8* match_;
};

// Immutable after construction; thread-safe.
class TextPattern {
 public:
  // PCRE2's syntax over Unicode (14, in PCRE2 10.42), except that ^, $, \s and
  // \w mean what they do in the tokenizers library: ends of lines, Unicode's
  // White_Space, and letters, marks, decimal digits and connecting punctuation.
  // (\W in brackets, and \b, are PCRE2's.) `literal`: the text itself, nothing
  // in it special.
  // InvalidArgument, with the offset in the pattern, if it is malformed.
  static absl::StatusOr<TextPattern> Compile(std::string_view pattern,
                                             bool literal);

  // Cuts `text`, valid UTF-8, into matches and what is between them and calls
  // `piece` for each, in order, never with an empty one. Stops at the first
  // error and returns it. InvalidArgument when the budget is used up.
  absl::Status Split(
      std::string_view text, PatternBudget& budget,
      absl::FunctionRef<absl::Status(std::string_view piece, bool matched)>
          piece) const;

 private:
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const;
  };
  using Code = std::unique_ptr<pcre2_real_code_8, FreeCode>;

  explicit TextPattern(Code code) : code_(std::move(code)) {}
  static absl::StatusOr<Code> CompileCode(std::string_view pattern,
                                          uint32_t options);
  // One match at or after `start`. False if there is none.
  absl::StatusOr<bool> Match(std::string_view text, size_t start,
                             PatternBudget& budget) const;

  Code code_;
};

}  // namespace reprise

#endif  // ENGINE_TEXT_PATTERN_H_
