#include "engine/template/prompt_encoder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/status_macros.h"

namespace reprise {
namespace {

std::vector<AddedToken> NamesOfSpecials(const Tokenizer& tokenizer,
                                        const TokenNames& names) {
  std::vector<AddedToken> tokens;
  const auto add = [&tokens](int32_t id, std::string_view name) {
    if (name.empty() || name.size() > kMaxAddedTokenBytes) return;
    tokens.push_back({.id = id, .content = std::string(name), .special = true});
  };
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto token = static_cast<int32_t>(id);
    if (tokenizer.IsSpecial(token)) add(token, tokenizer.TokenBytes(token));
  }
  for (const auto& [name, id] : names) {
    if (id < 0 || id >= tokenizer.vocab_size()) continue;
    const auto token = static_cast<int32_t>(id);
    if (tokenizer.IsSpecial(token)) add(token, name);
  }
  return tokens;
}

// Bytes before everything that came from the request.
size_t OpeningBytes(const ChatPrompt& prompt) {
  return prompt.plain.empty() ? prompt.text.size() : prompt.plain.front().begin;
}

// Whether a part of [begin, end) is plain.
bool TouchesPlain(const ChatPrompt& prompt, size_t begin, size_t end) {
  if (prompt.allow_special) return false;
  const auto it = std::partition_point(
      prompt.plain.begin(), prompt.plain.end(),
      [begin](const TextRange& range) { return range.end <= begin; });
  return it != prompt.plain.end() && it->begin < end;
}

// A special token that is meant, and the text before it.
struct Piece {
  std::string text;
  std::optional<int32_t> token;
};

// A prompt, cut at the special tokens that are meant.
struct Pieces {
  std::vector<Piece> all = std::vector<Piece>(1);
  bool named = false;  // a special token, in what is plain
  bool opens = false;  // the first stands before what the request says
};

absl::StatusOr<Pieces> Cut(const ChatPrompt& prompt,
                           const AddedTokenMatcher& special) {
  Pieces pieces;
  size_t at = 0;
  RETURN_IF_ERROR(special.Split(
      prompt.text, /*allow_special=*/true,
      [&](std::string_view part, std::optional<int32_t> id) {
        const size_t end = at + part.size();
        const bool touches = id.has_value() && TouchesPlain(prompt, at, end);
        pieces.named = pieces.named || touches;
        at = end;
        if (!id.has_value() || touches) {
          pieces.all.back().text += part;
          return absl::OkStatus();
        }
        if (pieces.all.size() == 1) pieces.opens = end <= OpeningBytes(prompt);
        pieces.all.back().token = id;
        pieces.all.emplace_back();
        return absl::OkStatus();
      }));
  return pieces;
}

// The prompt at once. NotFound, with nothing changed, if that gives other
// special tokens than are meant.
absl::Status EncodeWhole(const Tokenizer& tokenizer, const ChatPrompt& prompt,
                         const Pieces& pieces, size_t max_tokens,
                         EncodedPrompt& encoded) {
  ASSIGN_OR_RETURN(
      std::vector<int32_t> ids,
      tokenizer.EncodeUpTo(prompt.text, /*allow_special=*/true, max_tokens));
  std::vector<int32_t> meant;
  for (const Piece& piece : pieces.all) {
    if (piece.token.has_value()) meant.push_back(*piece.token);
  }
  size_t opening = 0;
  std::vector<int32_t> seen;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!tokenizer.IsSpecial(ids[i])) continue;
    if (seen.empty() && pieces.opens) opening = i + 1;
    seen.push_back(ids[i]);
  }
  // A tokenizer that normalises its text may see names where there are none,
  // and none by its own names where the folder's configs have others.
  if (seen != meant) return absl::NotFoundError("other tokens than are meant");
  encoded.ids = std::move(ids);
  encoded.opening = opening;
  return absl::OkStatus();
}

absl::Status EncodePieces(const Tokenizer& tokenizer, const Pieces& pieces,
                          size_t max_tokens, EncodedPrompt& encoded) {
  std::vector<int32_t>& ids = encoded.ids;
  for (const Piece& piece : pieces.all) {
    if (!piece.text.empty()) {
      const absl::StatusOr<std::vector<int32_t>> part = tokenizer.EncodeUpTo(
          piece.text, /*allow_special=*/false, max_tokens - ids.size());
      if (absl::IsResourceExhausted(part.status())) {
        return TooManyTokensError(max_tokens);  // of all, not of the part
      }
      RETURN_IF_ERROR(part.status());
      ids.insert(ids.end(), part->begin(), part->end());
    }
    if (piece.token.has_value()) {
      if (ids.size() == max_tokens) return TooManyTokensError(max_tokens);
      ids.push_back(*piece.token);
    }
    if (&piece == &pieces.all.front() && pieces.opens) {
      encoded.opening = ids.size();
    }
  }
  return absl::OkStatus();
}

}  // namespace

PromptEncoder::PromptEncoder(const Tokenizer& tokenizer,
                             const TokenNames& names)
    : tokenizer_(tokenizer),
      names_(NamesOfSpecials(tokenizer, names)),
      special_(names_) {}

absl::StatusOr<EncodedPrompt> PromptEncoder::Encode(const ChatPrompt& prompt,
                                                    size_t max_tokens) const {
  ASSIGN_OR_RETURN(const Pieces pieces, Cut(prompt, special_));
  EncodedPrompt encoded;
  encoded.opening_bytes = OpeningBytes(prompt);
  if (!pieces.named) {
    const absl::Status whole =
        EncodeWhole(tokenizer_, prompt, pieces, max_tokens, encoded);
    // Where names are not seen, piece by piece there are fewer tokens.
    if (!absl::IsNotFound(whole) && !absl::IsResourceExhausted(whole)) {
      RETURN_IF_ERROR(whole);
      return encoded;
    }
  }
  RETURN_IF_ERROR(EncodePieces(tokenizer_, pieces, max_tokens, encoded));
  return encoded;
}

std::optional<int32_t> PromptEncoder::FindToken(std::string_view name) const {
  const std::optional<int32_t> id = tokenizer_.FindToken(name);
  if (id.has_value()) return id;
  for (const AddedToken& token : names_) {
    if (token.content == name) return token.id;
  }
  return std::nullopt;
}

}  // namespace reprise
