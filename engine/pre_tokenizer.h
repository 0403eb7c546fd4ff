// Cuts a text into the pieces that are encoded one by one.
#ifndef ENGINE_PRE_TOKENIZER_H_
#define ENGINE_PRE_TOKENIZER_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/text_pattern.h"

namespace reprise {

// What becomes of the matches of a pattern, and of what is between them. Both
// are "parts" here.
enum class SplitBehavior {
  kRemoved,             // matches are dropped
  kIsolated,            // every part is a piece
  kContiguous,          // neighbours that both are matches are one piece
  kMergedWithPrevious,  // a match ends the piece before it
  kMergedWithNext,      // a match begins the piece after it
};

// When the metaspace is put before a piece that does not begin with one.
enum class PrependScheme { kAlways, kFirst, kNever };

struct PreTokenizerStep {
  enum class Kind {
    kSplit,        // cuts at `pattern`
    kPrefixSpace,  // puts a space before a piece that does not begin with one
    kMetaspace,    // writes spaces as `metaspace`
  };
  Kind kind = Kind::kSplit;

  std::string pattern;
  bool literal = false;  // `pattern` is the text itself, not an expression
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // what is between the matches counts as the matches

  std::string metaspace;  // one character
  PrependScheme prepend = PrependScheme::kAlways;
  bool split = true;  // cuts before every metaspace
};

// Immutable after construction; thread-safe.
class PreTokenizer {
 public:
  // InvalidArgument if a pattern is malformed.
  static absl::StatusOr<PreTokenizer> Create(
      std::vector<PreTokenizerStep> steps);

  // Calls `piece` for each piece of `text`, valid UTF-8, in order. `at_start`:
  // nothing comes before `text`. Stops at the first error and returns it.
  // InvalidArgument when the budget is used up.
  absl::Status Split(
      std::string_view text, bool at_start, PatternBudget& budget,
      absl::FunctionRef<absl::Status(std::string_view)> piece) const;

 private:
  struct Step {
    PreTokenizerStep spec;
    std::optional<TextPattern> pattern;  // of kSplit
  };
  using Sink = absl::FunctionRef<absl::Status(std::string_view)>;

  explicit PreTokenizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

  // From step `step` on.
  absl::Status SplitFrom(size_t step, std::string_view text, bool at_start,
                         PatternBudget& budget, Sink piece) const;

  std::vector<Step> steps_;
};

}  // namespace reprise

#endif  // ENGINE_PRE_TOKENIZER_H_
