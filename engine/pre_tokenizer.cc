#include "engine/pre_tokenizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"

namespace reprise {
namespace {

using Sink = absl::FunctionRef<absl::Status(std::string_view)>;

// Joins the parts of one text, which come in order and without gaps, to pieces.
class Joiner {
 public:
  Joiner(SplitBehavior behavior, Sink piece)
      : behavior_(behavior), piece_(piece) {}

  absl::Status Add(std::string_view part, bool matched) {
    const bool after = std::exchange(last_matched_, matched);
    if (!held_.empty() && Joins(after, matched)) {
      held_ = std::string_view(held_.data(), held_.size() + part.size());
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(Flush());
    if (behavior_ != SplitBehavior::kRemoved || !matched) held_ = part;
    return absl::OkStatus();
  }
  absl::Status Flush() {
    const std::string_view held = std::exchange(held_, {});
    return held.empty() ? absl::OkStatus() : piece_(held);
  }

 private:
  // Whether a part belongs to the piece of the one before.
  bool Joins(bool last_matched, bool matched) const {
    switch (behavior_) {
      case SplitBehavior::kRemoved:
      case SplitBehavior::kIsolated:
        return false;
      case SplitBehavior::kContiguous:
        return matched == last_matched;
      case SplitBehavior::kMergedWithPrevious:
        return matched && !last_matched;
      case SplitBehavior::kMergedWithNext:
        return !matched && last_matched;
    }
    return false;
  }

  const SplitBehavior behavior_;
  const Sink piece_;
  std::string_view held_;
  bool last_matched_ = false;
};

std::string WithMetaspace(std::string_view text, bool at_start,
                          const PreTokenizerStep& step) {
  std::string result;
  result.reserve(text.size() + step.metaspace.size());
  const bool prepend = step.prepend == PrependScheme::kAlways ||
                       (step.prepend == PrependScheme::kFirst && at_start);
  if (prepend && !text.starts_with(' ') && !text.starts_with(step.metaspace)) {
    result = step.metaspace;
  }
  for (const char c : text) {
    if (c == ' ') {
      result += step.metaspace;
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::Create(
    std::vector<PreTokenizerStep> specs) {
  std::vector<Step> steps;
  for (PreTokenizerStep& spec : specs) {
    Step step{std::move(spec), std::nullopt};
    if (step.spec.kind == PreTokenizerStep::Kind::kSplit) {
      ASSIGN_OR_RETURN(step.pattern, TextPattern::Compile(step.spec.pattern,
                                                          step.spec.literal));
    }
    steps.push_back(std::move(step));
  }
  return PreTokenizer(std::move(steps));
}

absl::Status PreTokenizer::Split(std::string_view text, bool at_start,
                                 PatternBudget& budget, Sink piece) const {
  return SplitFrom(/*step=*/0, text, at_start, budget, piece);
}

absl::Status PreTokenizer::SplitFrom(size_t index, std::string_view text,
                                     bool at_start, PatternBudget& budget,
                                     Sink piece) const {
  if (index == steps_.size()) return piece(text);
  const Step& step = steps_[index];
  const PreTokenizerStep& spec = step.spec;
  switch (spec.kind) {
    case PreTokenizerStep::Kind::kPrefixSpace:
      if (text.starts_with(' ')) {
        return SplitFrom(index + 1, text, at_start, budget, piece);
      }
      return SplitFrom(index + 1, absl::StrCat(" ", ToAbsl(text)), at_start,
                       budget, piece);
    case PreTokenizerStep::Kind::kSplit: {
      const auto next = [&](std::string_view part) {
        return SplitFrom(index + 1, part,
                         at_start && part.data() == text.data(), budget, piece);
      };
      Joiner joiner(spec.behavior, next);
      RETURN_IF_ERROR(step.pattern->Split(
          text, budget, [&](std::string_view part, bool matched) {
            return joiner.Add(part, matched != spec.invert);
          }));
      return joiner.Flush();
    }
    case PreTokenizerStep::Kind::kMetaspace: {
      const std::string spaced = WithMetaspace(text, at_start, spec);
      std::string_view rest = spaced;
      while (spec.split && !rest.empty()) {
        // A metaspace in front does not cut: the piece begins with it.
        const size_t cut = rest.find(spec.metaspace, NextUtf8(rest).size);
        if (cut == std::string_view::npos) break;
        RETURN_IF_ERROR(SplitFrom(index + 1, rest.substr(0, cut),
                                  at_start && rest.data() == spaced.data(),
                                  budget, piece));
        rest.remove_prefix(cut);
      }
      return SplitFrom(index + 1, rest,
                       at_start && rest.data() == spaced.data(), budget, piece);
    }
  }
  return absl::OkStatus();
}

}  // namespace reprise
