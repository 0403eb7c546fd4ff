#include "engine/sentencepiece_normalizer.h"

#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/tokenizer.h"

namespace reprise {
namespace {

// A unit of the trie, as darts.h of Darts-clone 0.32 lays it out.
struct Unit {
  uint32_t bits;

  bool has_leaf() const { return (bits >> 8 & 1) != 0; }
  uint32_t value() const { return bits & 0x7FFFFFFF; }
  uint32_t label() const { return bits & (uint32_t{1} << 31 | 0xFF); }
  uint32_t offset() const { return bits >> 10 << ((bits & 1 << 9) >> 6); }
};

struct Match {
  size_t size = 0;
  uint32_t value = 0;
};

// The longest key that `text` begins with. The trie comes from a file: every
// place in it is checked before it is read.
std::optional<Match> LongestMatch(const std::vector<uint32_t>& units,
                                  std::string_view text) {
  std::optional<Match> longest;
  if (units.empty()) return longest;
  uint32_t at = Unit{units[0]}.offset();
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    at ^= byte;
    if (at >= units.size()) break;
    const Unit unit{units[at]};
    if (unit.label() != byte) break;
    at ^= unit.offset();
    if (!unit.has_leaf()) continue;
    if (at >= units.size()) break;
    longest = {.size = i + 1, .value = Unit{units[at]}.value()};
  }
  return longest;
}

}  // namespace

absl::StatusOr<SentencePieceNormalizer> SentencePieceNormalizer::Create(
    const SentencePieceSpec& spec) {
  SentencePieceNormalizer normalizer;
  normalizer.add_dummy_prefix_ = spec.add_dummy_prefix;
  normalizer.remove_extra_whitespaces_ = spec.remove_extra_whitespaces;
  normalizer.space_ = spec.escape_whitespaces ? kMetaspace : " ";
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const SentencePiece& piece = spec.pieces[i];
    if (piece.type == SentencePiece::Type::kUserDefined) {
      normalizer.user_defined_.Insert(piece.text, static_cast<int32_t>(i));
    }
  }
  RETURN_IF_ERROR(normalizer.ReadRules(spec.charsmap));
  return normalizer;
}

// The size of the trie in bytes, the trie, the replacements.
absl::Status SentencePieceNormalizer::ReadRules(std::string_view charsmap) {
  if (charsmap.empty()) return absl::OkStatus();
  constexpr std::string_view kField =
      "tokenizer.model: normalizer_spec.precompiled_charsmap";
  uint32_t size = 0;
  if (charsmap.size() < sizeof(size)) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToAbsl(kField), " is cut off"));
  }
  std::memcpy(&size, charsmap.data(), sizeof(size));
  charsmap.remove_prefix(sizeof(size));
  if (size % sizeof(uint32_t) != 0 || size > charsmap.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToAbsl(kField), " has ", charsmap.size(),
                     " bytes and a trie of ", size));
  }
  units_.resize(size / sizeof(uint32_t));
  std::memcpy(units_.data(), charsmap.data(), size);
  replacements_ = charsmap.substr(size);
  if (!replacements_.ends_with('\0') ||
      FindInvalidUtf8(replacements_) != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        ToAbsl(kField), " has replacements that do not end or are not UTF-8"));
  }
  return absl::OkStatus();
}

SentencePieceNormalizer::Prefix SentencePieceNormalizer::NextPrefix(
    std::string_view text) const {
  size_t own = 0;
  user_defined_.ForEachPrefix(text,
                              [&](size_t size, int32_t /*id*/) { own = size; });
  if (own > 0) return {own, text.substr(0, own)};
  const std::optional<Match> match = LongestMatch(units_, text);
  // A rule that ends inside a character, or leads inside one, is no rule.
  const bool good =
      match.has_value() && match->value < replacements_.size() &&
      FindInvalidUtf8(text.substr(0, match->size)) == std::string_view::npos &&
      (match->value == 0 || replacements_[match->value - 1] == '\0');
  if (good) return {match->size, replacements_.c_str() + match->value};
  const size_t size = NextUtf8(text).size;
  return {size, text.substr(0, size)};
}

void SentencePieceNormalizer::Append(std::string_view normal,
                                     std::string* out) const {
  for (const char c : normal) {
    if (c == ' ') {
      out->append(space_);
    } else {
      out->push_back(c);
    }
  }
}

absl::StatusOr<std::string> SentencePieceNormalizer::Apply(
    std::string_view text) const {
  std::string result;
  result.reserve(text.size() + space_.size());
  bool after_space = remove_extra_whitespaces_;
  bool begun = false;
  while (!text.empty()) {
    Prefix prefix = NextPrefix(text);
    text.remove_prefix(prefix.size);
    // The library drops leading spaces before it adds its own, and nothing at
    // all is left of a text of spaces.
    if (!begun && remove_extra_whitespaces_ && prefix.normal == " ") continue;
    if (!begun && add_dummy_prefix_) result.append(space_);
    begun = true;
    while (after_space && prefix.normal.starts_with(' ')) {
      prefix.normal.remove_prefix(1);
    }
    if (!prefix.normal.empty()) {
      after_space = remove_extra_whitespaces_ && prefix.normal.ends_with(' ');
    }
    Append(prefix.normal, &result);
    RETURN_IF_ERROR(CheckNormalizedSize(result.size()));
  }
  while (remove_extra_whitespaces_ && result.ends_with(space_)) {
    result.resize(result.size() - space_.size());
  }
  return result;
}

}  // namespace reprise
