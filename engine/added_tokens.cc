#include "engine/added_tokens.h"

#include <utf8proc.h>

#include <utility>

#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"

namespace reprise {
namespace {

// Unicode's White_Space property.
bool IsWhiteSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// What the tokenizers library's \w matches, but for a few symbols that have the
// Alphabetic property without being letters.
bool IsWordCharacter(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return c == 0x200C || c == 0x200D;  // Join_Control
  }
}

// `text` is not empty.
char32_t FirstCharacter(std::string_view text) {
  return DecodeUtf8Character(text.substr(0, NextUtf8(text).size));
}

// Where the last character of `text`, which is not empty, begins.
size_t LastCharacterBegin(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (text[begin] & 0xC0) == 0x80) --begin;
  return begin;
}

size_t LeadingSpaceBytes(std::string_view text) {
  size_t bytes = 0;
  while (bytes < text.size()) {
    const std::string_view rest = text.substr(bytes);
    if (!IsWhiteSpace(FirstCharacter(rest))) break;
    bytes += NextUtf8(rest).size;
  }
  return bytes;
}

size_t TrailingSpaceBytes(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t begin = LastCharacterBegin(text.substr(0, end));
    if (!IsWhiteSpace(FirstCharacter(text.substr(begin, end - begin)))) break;
    end = begin;
  }
  return text.size() - end;
}

// Whether no word goes on across the borders of text[begin, end).
bool StandsAlone(std::string_view text, size_t begin, size_t end) {
  const std::string_view before = text.substr(0, begin);
  const std::string_view after = text.substr(end);
  const bool joined_before =
      !before.empty() && IsWordCharacter(FirstCharacter(
                             before.substr(LastCharacterBegin(before))));
  return !joined_before &&
         (after.empty() || !IsWordCharacter(FirstCharacter(after)));
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    trie_.Insert(tokens_[i].content, static_cast<int32_t>(i));
  }
}

const AddedToken* AddedTokenMatcher::Longest(std::string_view text,
                                             bool allow_special) const {
  const AddedToken* longest = nullptr;
  trie_.ForEachPrefix(text, [&](size_t /*size*/, int32_t index) {
    const AddedToken& token = tokens_[index];
    if (allow_special || !token.special) longest = &token;
  });
  return longest;
}

absl::Status AddedTokenMatcher::Split(
    std::string_view text, bool allow_special,
    absl::FunctionRef<absl::Status(std::string_view, std::optional<int32_t>)>
        piece) const {
  size_t done = 0;  // everything before has been given to `piece`
  size_t at = 0;
  while (at < text.size()) {
    const AddedToken* token = Longest(text.substr(at), allow_special);
    if (token == nullptr) {
      ++at;
      continue;
    }
    const size_t begin = at;
    at += token->content.size();
    if (token->single_word && !StandsAlone(text, begin, at)) continue;
    std::string_view before = text.substr(done, begin - done);
    if (token->lstrip) before.remove_suffix(TrailingSpaceBytes(before));
    if (!before.empty()) RETURN_IF_ERROR(piece(before, std::nullopt));
    if (token->rstrip) at += LeadingSpaceBytes(text.substr(at));
    done = at;
    RETURN_IF_ERROR(piece(token->content, token->id));
  }
  if (done == text.size()) return absl::OkStatus();
  return piece(text.substr(done), std::nullopt);
}

}  // namespace reprise
