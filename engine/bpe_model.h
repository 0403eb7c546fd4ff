// Byte-pair encoding of one piece of text: its first tokens, and their merging.
#ifndef ENGINE_BPE_MODEL_H_
#define ENGINE_BPE_MODEL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "engine/bpe_merger.h"

namespace reprise {

// Filled by one thread, then immutable and thread-safe.
//
// A piece begins as one token for each of its bytes, if bytes are set, or else
// for each of its characters. A character that has no token becomes the tokens
// of its bytes, if all of them have one, else the unknown token, else nothing.
class BpeModel {
 public:
  enum class Unit { kByte, kCharacter };

  explicit BpeModel(Unit unit) : unit_(unit) { byte_ids_.fill(-1); }

  // The token of a byte, for kCharacter the one a character may fall back to.
  void SetByte(uint8_t byte, int32_t id) { byte_ids_[byte] = id; }
  void SetCharacter(char32_t character, int32_t id);
  // With `fuse`, neighbours that are unknown are one token.
  void SetUnknown(int32_t id, bool fuse);
  // Must be called for every token that merges lead to, with what of a piece it
  // stands for.
  void SetText(std::string_view text);
  // A piece of just these bytes is this token, whatever the merges say.
  void SetWhole(std::string_view piece, int32_t id) {
    whole_.emplace(piece, id);
  }
  BpeMerges& merges() { return merges_; }
  const BpeMerges& merges() const { return merges_; }

  // -1 if the byte has no token.
  int32_t byte_id(uint8_t byte) const { return byte_ids_[byte]; }

  // Appends the tokens of `piece`, valid UTF-8. `merger` is one over merges().
  // TooManyTokensError, with anything in `ids`, if there are more than
  // `max_tokens` then; a piece that cannot have fewer is not merged for that.
  absl::Status Encode(std::string_view piece, size_t max_tokens,
                      BpeMerger& merger, std::vector<int32_t>* ids) const;

 private:
  // Whether every character becomes a token or more of its own.
  bool KeepsAll() const;
  // A number that the tokens of `piece` are not less than; more than `enough`
  // are not counted. Takes a look-up a byte.
  size_t LeastTokens(std::string_view piece, size_t enough) const;
  void AddBytes(std::string_view bytes, BpeMerger& merger) const;
  void AddCharacters(std::string_view piece, BpeMerger& merger) const;
  int32_t CharacterId(std::string_view character) const;
  bool HasBytes(std::string_view character) const;

  const Unit unit_;
  std::array<int32_t, 256> byte_ids_;  // -1 if there is none
  absl::flat_hash_map<char32_t, int32_t> character_ids_;
  std::optional<int32_t> unknown_;
  bool fuse_unknown_ = false;
  absl::flat_hash_map<std::string, int32_t> whole_;
  // By the first kStartBytes of tokens that are longer: bytes of the longest.
  absl::flat_hash_map<uint32_t, size_t> longest_;
  BpeMerges merges_;
};

}  // namespace reprise

#endif  // ENGINE_BPE_MODEL_H_
