#include "engine/text_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"

namespace reprise {
namespace {

constexpr int64_t kStepsPerText = 50'000'000;
constexpr int64_t kStepsPerByte = 256;
// Memory of the interpreter, which takes over when a match is too deep for the
// compiled code's stack.
constexpr uint32_t kMaxHeapKib = 64 * 1024;
constexpr size_t kMaxPatternBytes = 64 * 1024;

// PCRE2's \s takes U+180E for a space, as Unicode did before 6.3, and its \w
// knows no combining marks. What the tokenizers library means: the property
// White_Space; letters, marks, decimal digits and connecting punctuation.
constexpr std::string_view kWordProperties = "\\p{L}\\p{M}\\p{Nd}\\p{Pc}";

std::string WithLibraryClasses(std::string_view pattern) {
  std::string result;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view rest = pattern.substr(i);
    if (rest.starts_with("\\s")) {
      result += "\\p{White_Space}";
      ++i;
    } else if (rest.starts_with("\\S")) {
      result += "\\P{White_Space}";
      ++i;
    } else if (rest.starts_with("\\w") && in_class) {
      result += kWordProperties;
      ++i;
    } else if (!in_class &&
               (rest.starts_with("\\w") || rest.starts_with("\\W"))) {
      result.append(rest[1] == 'w' ? "[" : "[^").append(kWordProperties);
      result += ']';
      ++i;
    } else if (rest[0] == '\\' && rest.size() > 1) {
      result += rest.substr(0, 2);
      ++i;
    } else if (in_class && rest.starts_with("[:")) {  // as in [[:alpha:]]
      const size_t end = std::min(rest.find(":]"), rest.size() - 2) + 2;
      result += rest.substr(0, end);
      i += end - 1;
    } else if (!in_class && rest[0] == '[') {
      // A bracket right behind the beginning ends nothing.
      const size_t size = 1 + (rest.starts_with("[^") ? 1 : 0);
      const bool literal = rest.substr(size).starts_with(']');
      result += rest.substr(0, size + (literal ? 1 : 0));
      i += size + (literal ? 1 : 0) - 1;
      in_class = true;
    } else {
      if (rest[0] == ']') in_class = false;
      result += rest[0];
    }
  }
  return result;
}

std::string ErrorText(int code) {
  PCRE2_UCHAR buffer[256] = {};
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

template <typename CalloutBlock>
int PatternBudget::Charge(CalloutBlock* block, void* budget) {
  auto* self = static_cast<PatternBudget*>(budget);
  const size_t now = block->current_position;
  const size_t then = std::exchange(self->last_position_, now);
  self->steps_left_ -=
      1 + static_cast<int64_t>(now > then ? now - then : then - now);
  return self->steps_left_ < 0 ? PCRE2_ERROR_CALLOUT : 0;
}

PatternBudget::PatternBudget(size_t text_bytes)
    : steps_left_(kStepsPerText +
                  kStepsPerByte * static_cast<int64_t>(text_bytes)),
      context_(pcre2_match_context_create(nullptr)),
      match_(pcre2_match_data_create(/*ovecsize=*/1, nullptr)) {
  CHECK(context_ != nullptr && match_ != nullptr);  // out of memory
  pcre2_set_callout(context_, &Charge<pcre2_callout_block>, this);
  pcre2_set_heap_limit(context_, kMaxHeapKib);
}

PatternBudget::~PatternBudget() {
  pcre2_match_data_free(match_);
  pcre2_match_context_free(context_);
}

void TextPattern::FreeCode::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}

absl::StatusOr<TextPattern::Code> TextPattern::CompileCode(
    std::string_view pattern, uint32_t options) {
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  CHECK(context != nullptr);  // out of memory
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()),
                          pattern.size(), options, &error, &offset, context));
  pcre2_compile_context_free(context);
  if (code == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("bad pattern at offset ", offset, ": ", ErrorText(error)));
  }
  return code;
}

absl::StatusOr<TextPattern> TextPattern::Compile(std::string_view pattern,
                                                 bool literal) {
  if (pattern.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("pattern of ", pattern.size(), " bytes (at most ",
                     kMaxPatternBytes, ")"));
  }
  // Automatic callouts are how the budget is charged. In Ruby's syntax ^ and $
  // stand at every line.
  constexpr uint32_t kAlways = PCRE2_UTF | PCRE2_AUTO_CALLOUT;
  constexpr uint32_t kRegex =
      kAlways | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  const uint32_t options = literal ? kAlways | PCRE2_LITERAL : kRegex;
  // The pattern as it was given comes first, so that an error's offset is one
  // in what the user wrote.
  ASSIGN_OR_RETURN(Code code, CompileCode(pattern, options));
  if (!literal) {
    ASSIGN_OR_RETURN(code, CompileCode(WithLibraryClasses(pattern), options));
  }
  // Without the just-in-time compiler patterns are interpreted: slower, equal.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return TextPattern(std::move(code));
}

absl::StatusOr<bool> TextPattern::Match(std::string_view text, size_t start,
                                        PatternBudget& budget) const {
  const auto match = [&](uint32_t options) {
    budget.last_position_ = start;
    return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                       text.size(), start, options | PCRE2_NO_UTF_CHECK,
                       budget.match_, budget.context_);
  };
  int result = match(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(PCRE2_NO_JIT);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  // 0 is a match, too: its groups are more than we asked to see.
  if (result >= 0) return true;
  if (result == PCRE2_ERROR_CALLOUT) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the tokenizer's pattern gives up on a piece of ", text.size(),
        " bytes, at its byte ", start, ": too many steps"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the tokenizer's pattern gives up on a piece of ", text.size(),
      " bytes, at its byte ", start, ": ", ErrorText(result)));
}

absl::Status TextPattern::Split(
    std::string_view text, PatternBudget& budget,
    absl::FunctionRef<absl::Status(std::string_view piece, bool matched)> piece)
    const {
  size_t done = 0;   // everything before has been given to `piece`
  size_t start = 0;  // where the next match may begin
  while (start < text.size()) {
    ASSIGN_OR_RETURN(const bool found, Match(text, start, budget));
    if (!found) break;
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(budget.match_);
    const size_t begin = ends[0];
    const size_t end = ends[1];
    if (begin > done) {
      RETURN_IF_ERROR(piece(text.substr(done, begin - done), false));
    }
    if (end > begin) {
      RETURN_IF_ERROR(piece(text.substr(begin, end - begin), true));
    }
    done = end;
    start = end;
    // An empty match cuts, and the search goes on one character further.
    if (end == begin && end < text.size()) {
      start += NextUtf8(text.substr(end)).size;
    } else if (end == begin) {
      break;
    }
  }
  if (done == text.size()) return absl::OkStatus();
  return piece(text.substr(done), false);
}

}  // namespace reprise
