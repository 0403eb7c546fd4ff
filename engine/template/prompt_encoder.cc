#include "engine/template/prompt_encoder.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/status_macros.h"

namespace reprise {
namespace {

std::vector<AddedToken> SpecialTokens(const Tokenizer& tokenizer) {
  std::vector<AddedToken> tokens;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto token = static_cast<int32_t>(id);
    const std::string_view name = tokenizer.TokenBytes(token);
    if (!tokenizer.IsSpecial(token) || name.empty()) continue;
    tokens.push_back(
        {.id = token, .content = std::string(name), .special = true});
  }
  return tokens;
}

// Whether a part of [begin, end) came from the request.
bool TouchesPlain(const ChatPrompt& prompt, size_t begin, size_t end) {
  const auto it = std::partition_point(
      prompt.plain.begin(), prompt.plain.end(),
      [begin](const TextRange& range) { return range.end <= begin; });
  return it != prompt.plain.end() && it->begin < end;
}

// A special token that the template wrote, and the text before it.
struct Piece {
  std::string text;
  std::optional<int32_t> token;
};

}  // namespace

PromptEncoder::PromptEncoder(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), special_(SpecialTokens(tokenizer)) {}

absl::StatusOr<std::vector<int32_t>> PromptEncoder::Encode(
    const ChatPrompt& prompt) const {
  std::vector<Piece> pieces(1);
  size_t at = 0;
  bool named = false;  // a special token, in what came from the request
  RETURN_IF_ERROR(special_.Split(
      prompt.text, /*allow_special=*/true,
      [&](std::string_view part, std::optional<int32_t> id) {
        const bool touches =
            id.has_value() && TouchesPlain(prompt, at, at + part.size());
        named = named || touches;
        at += part.size();
        if (id.has_value() && !touches) {
          pieces.back().token = id;
          pieces.emplace_back();
        } else {
          pieces.back().text += part;
        }
        return absl::OkStatus();
      }));
  if (!named) {
    ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                     tokenizer_.Encode(prompt.text, /*allow_special=*/true));
    // A tokenizer that normalises its text may see names where there are none.
    const auto special =
        std::count_if(ids.begin(), ids.end(),
                      [this](int32_t id) { return tokenizer_.IsSpecial(id); });
    if (static_cast<size_t>(special) + 1 == pieces.size()) return ids;
  }
  std::vector<int32_t> ids;
  for (const Piece& piece : pieces) {
    if (!piece.text.empty()) {
      ASSIGN_OR_RETURN(const std::vector<int32_t> part,
                       tokenizer_.Encode(piece.text, /*allow_special=*/false));
      ids.insert(ids.end(), part.begin(), part.end());
    }
    if (piece.token.has_value()) ids.push_back(*piece.token);
  }
  return ids;
}

}  // namespace reprise
