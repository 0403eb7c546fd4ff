// What a template may use up. A template comes with a model and its input from
// anywhere, so both may be made to run for ever or to fill the memory.
#ifndef ENGINE_TEMPLATE_BUDGET_H_
#define ENGINE_TEMPLATE_BUDGET_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace reprise::jinja {

// Bytes of a template's source.
inline constexpr size_t kMaxSourceBytes = size_t{1} << 20;
// Of a name in it: what is looked for by name costs one step.
inline constexpr size_t kMaxNameBytes = 1024;
// Expressions and blocks inside each other, in the source.
inline constexpr int kMaxSyntaxDepth = 100;
// The same while it runs, through calls of macros.
inline constexpr int kMaxRunDepth = 300;
// Lists and dicts inside each other.
inline constexpr int kMaxValueDepth = 64;
// Numbers in one range(), which a loop over it would take one by one.
inline constexpr int64_t kMaxRange = 100'000;

struct RenderLimits {
  // Parts of expressions evaluated, and what they cost beyond that: a step for
  // every element of a list and every 16 characters of a text or names that an
  // operation goes through. About 50 ns each.
  int64_t max_steps = 10'000'000;
  // Characters and elements that are built, at 4 and 32 bytes.
  int64_t max_characters = int64_t{64} << 20;
  int64_t max_elements = int64_t{1} << 20;
  int64_t max_output_characters = int64_t{16} << 20;
};

// Counts down. ResourceExhausted, naming the limit, when something is used up.
class Budget {
 public:
  explicit Budget(const RenderLimits& limits)
      : limits_(limits), left_(limits) {}

  absl::Status Steps(size_t count) {
    return Take(count, limits_.max_steps, "steps", &left_.max_steps);
  }
  // Looking for a name among so many.
  absl::Status Search(size_t names) { return Steps(names / 16); }
  // Going through that many characters.
  absl::Status Scan(size_t characters) { return Steps(characters / 16); }
  // Before they are built.
  absl::Status Build(size_t characters) {
    if (absl::Status status = Scan(characters); !status.ok()) return status;
    return Take(characters, limits_.max_characters, "characters built",
                &left_.max_characters);
  }
  absl::Status BuildElements(size_t count) {
    if (absl::Status status = Steps(count); !status.ok()) return status;
    return Take(count, limits_.max_elements, "elements built",
                &left_.max_elements);
  }
  absl::Status Output(size_t characters) {
    if (absl::Status status = Build(characters); !status.ok()) return status;
    return Take(characters, limits_.max_output_characters,
                "characters of output", &left_.max_output_characters);
  }

 private:
  static absl::Status Take(size_t count, int64_t limit, const char* what,
                           int64_t* left) {
    if (count <= static_cast<size_t>(*left)) {
      *left -= static_cast<int64_t>(count);
      return absl::OkStatus();
    }
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", limit, " ", what));
  }

  const RenderLimits limits_;
  RenderLimits left_;
};

}  // namespace reprise::jinja

#endif  // ENGINE_TEMPLATE_BUDGET_H_
