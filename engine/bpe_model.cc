#include "engine/bpe_model.h"

#include <algorithm>
#include <cstring>

#include "engine/base/bytes.h"
#include "engine/base/utf8.h"
#include "engine/tokenizer.h"

namespace reprise {
namespace {

// The longest character has so many.
constexpr size_t kStartBytes = sizeof(uint32_t);

uint32_t StartOf(std::string_view text) {
  uint32_t start;
  std::memcpy(&start, text.data(), sizeof(start));
  return start;
}

}  // namespace

void BpeModel::SetCharacter(char32_t character, int32_t id) {
  character_ids_[character] = id;
}

void BpeModel::SetUnknown(int32_t id, bool fuse) {
  unknown_ = id;
  fuse_unknown_ = fuse;
}

void BpeModel::SetText(std::string_view text) {
  if (text.size() <= kStartBytes) return;
  size_t& longest = longest_[StartOf(text)];
  longest = std::max(longest, text.size());
}

absl::Status BpeModel::Encode(std::string_view piece, size_t max_tokens,
                              BpeMerger& merger,
                              std::vector<int32_t>* ids) const {
  const size_t room = max_tokens - std::min(ids->size(), max_tokens);
  if (!whole_.empty()) {
    if (const auto it = whole_.find(ToAbsl(piece)); it != whole_.end()) {
      if (room == 0) return TooManyTokensError(max_tokens);
      ids->push_back(it->second);
      return absl::OkStatus();
    }
  }
  if (piece.size() > room && LeastTokens(piece, room) > room) {
    return TooManyTokensError(max_tokens);
  }
  merger.Start(piece.size());
  if (unit_ == Unit::kByte) {
    AddBytes(piece, merger);
  } else {
    AddCharacters(piece, merger);
  }
  merger.Finish(ids);
  return ids->size() > max_tokens ? TooManyTokensError(max_tokens)
                                  : absl::OkStatus();
}

bool BpeModel::KeepsAll() const {
  if (unit_ == Unit::kByte || (unknown_.has_value() && !fuse_unknown_)) {
    return true;
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (byte_ids_[byte] < 0 && OccursInUtf8(byte)) return false;
  }
  return true;
}

// Tokens follow each other without gaps. As far as k of them can reach, the
// next one begins there or before, so k + 1 reach no further than the longest
// of all tokens that could begin up to there.
size_t BpeModel::LeastTokens(std::string_view piece, size_t enough) const {
  if (!KeepsAll()) return 0;
  size_t tokens = 0;
  size_t reached = 0;   // by so many tokens
  size_t furthest = 0;  // by one more
  for (size_t i = 0; i < piece.size() && tokens <= enough; ++i) {
    size_t size = kStartBytes;  // shorter ones, and unknown characters
    if (piece.size() - i > kStartBytes) {
      const auto it = longest_.find(StartOf(piece.substr(i)));
      if (it != longest_.end()) size = it->second;
    }
    furthest = std::max(furthest, i + size);
    if (i < reached) continue;
    ++tokens;
    reached = furthest;
  }
  return tokens;
}

void BpeModel::AddBytes(std::string_view bytes, BpeMerger& merger) const {
  for (const char byte : bytes) {
    merger.Add(byte_ids_[static_cast<uint8_t>(byte)]);
  }
}

void BpeModel::AddCharacters(std::string_view piece, BpeMerger& merger) const {
  bool after_unknown = false;
  while (!piece.empty()) {
    const std::string_view character = piece.substr(0, NextUtf8(piece).size);
    piece.remove_prefix(character.size());
    const int32_t id = CharacterId(character);
    const bool is_unknown = id < 0 && !HasBytes(character);
    if (id >= 0) {
      merger.Add(id);
    } else if (!is_unknown) {
      AddBytes(character, merger);
    } else if (unknown_.has_value() && !(fuse_unknown_ && after_unknown)) {
      merger.Add(*unknown_);
    }
    after_unknown = is_unknown;
  }
}

int32_t BpeModel::CharacterId(std::string_view character) const {
  const auto it = character_ids_.find(DecodeUtf8Character(character));
  return it == character_ids_.end() ? -1 : it->second;
}

bool BpeModel::HasBytes(std::string_view character) const {
  return std::all_of(character.begin(), character.end(), [this](char byte) {
    return byte_ids_[static_cast<uint8_t>(byte)] >= 0;
  });
}

}  // namespace reprise
