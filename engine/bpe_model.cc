#include "engine/bpe_model.h"

#include <algorithm>

#include "engine/base/bytes.h"
#include "engine/base/utf8.h"

namespace reprise {

void BpeModel::SetCharacter(char32_t character, int32_t id) {
  character_ids_[character] = id;
}

void BpeModel::SetUnknown(int32_t id, bool fuse) {
  unknown_ = id;
  fuse_unknown_ = fuse;
}

void BpeModel::Encode(std::string_view piece, BpeMerger& merger,
                      std::vector<int32_t>* ids) const {
  if (!whole_.empty()) {
    if (const auto it = whole_.find(ToAbsl(piece)); it != whole_.end()) {
      ids->push_back(it->second);
      return;
    }
  }
  merger.Start(piece.size());
  if (unit_ == Unit::kByte) {
    AddBytes(piece, merger);
  } else {
    AddCharacters(piece, merger);
  }
  merger.Finish(ids);
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
