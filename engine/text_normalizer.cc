#include "engine/text_normalizer.h"

#include <utility>

#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/tokenizer.h"

namespace reprise {
namespace {

absl::StatusOr<std::string> ReplaceLiteral(std::string_view text,
                                           std::string_view from,
                                           std::string_view to) {
  std::string result;
  result.reserve(text.size());
  while (true) {
    const size_t at = text.find(from);
    if (at == std::string_view::npos) break;
    result.append(text.substr(0, at)).append(to);
    RETURN_IF_ERROR(CheckNormalizedSize(result.size()));
    text.remove_prefix(at + from.size());
  }
  result.append(text);
  return result;
}

absl::StatusOr<std::string> ReplaceMatches(std::string_view text,
                                           const TextPattern& pattern,
                                           std::string_view to,
                                           PatternBudget& budget) {
  std::string result;
  RETURN_IF_ERROR(pattern.Split(
      text, budget, [&](std::string_view piece, bool matched) -> absl::Status {
        result.append(matched ? to : piece);
        return CheckNormalizedSize(result.size());
      }));
  return result;
}

}  // namespace

absl::StatusOr<TextNormalizer> TextNormalizer::Create(
    std::vector<NormalizerStep> specs) {
  std::vector<Step> steps;
  for (NormalizerStep& spec : specs) {
    Step step{std::move(spec), std::nullopt};
    if (step.spec.kind == NormalizerStep::Kind::kReplace &&
        !step.spec.literal) {
      ASSIGN_OR_RETURN(step.pattern, TextPattern::Compile(step.spec.pattern,
                                                          /*literal=*/false));
    }
    steps.push_back(std::move(step));
  }
  return TextNormalizer(std::move(steps));
}

absl::StatusOr<std::string> TextNormalizer::Apply(std::string_view text,
                                                  PatternBudget& budget) const {
  std::string result(text);
  for (const Step& step : steps_) {
    const NormalizerStep& spec = step.spec;
    switch (spec.kind) {
      case NormalizerStep::Kind::kNormalForm: {
        ASSIGN_OR_RETURN(result, Normalize(spec.form, result));
        break;
      }
      case NormalizerStep::Kind::kPrepend:
        if (!result.empty()) result.insert(0, spec.content);
        break;
      case NormalizerStep::Kind::kReplace:
        if (step.pattern.has_value()) {
          ASSIGN_OR_RETURN(result, ReplaceMatches(result, *step.pattern,
                                                  spec.content, budget));
        } else {
          ASSIGN_OR_RETURN(result,
                           ReplaceLiteral(result, spec.pattern, spec.content));
        }
        break;
    }
    RETURN_IF_ERROR(CheckNormalizedSize(result.size()));
  }
  return result;
}

}  // namespace reprise
