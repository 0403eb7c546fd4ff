// What a tokenizer does to a text before it looks for tokens in it.
#ifndef ENGINE_TEXT_NORMALIZER_H_
#define ENGINE_TEXT_NORMALIZER_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/normal_form.h"
#include "engine/text_pattern.h"

namespace reprise {

struct NormalizerStep {
  enum class Kind {
    kNormalForm,  // Unicode's `form`
    kPrepend,     // puts `content` before a text that is not empty
    kReplace,     // puts `content` in place of every match of `pattern`
  };
  Kind kind = Kind::kNormalForm;
  NormalForm form = NormalForm::kNfc;
  std::string content;
  std::string pattern;  // not empty
  bool literal = true;  // `pattern` is the text itself, not an expression
};

// Immutable after construction; thread-safe.
class TextNormalizer {
 public:
  // InvalidArgument if a pattern is malformed.
  static absl::StatusOr<TextNormalizer> Create(
      std::vector<NormalizerStep> steps);

  // `text`, valid UTF-8, after all steps in their order. InvalidArgument if it
  // grows to more than 4 * kMaxTextBytes, or the budget is used up.
  absl::StatusOr<std::string> Apply(std::string_view text,
                                    PatternBudget& budget) const;

  // Whether Apply returns every text as it is.
  bool empty() const { return steps_.empty(); }

 private:
  struct Step {
    NormalizerStep spec;
    std::optional<TextPattern> pattern;  // of an expression
  };

  explicit TextNormalizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

  std::vector<Step> steps_;
};

}  // namespace reprise

#endif  // ENGINE_TEXT_NORMALIZER_H_
