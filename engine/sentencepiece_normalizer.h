// What SentencePiece does to a text before it looks for pieces in it.
#ifndef ENGINE_SENTENCEPIECE_NORMALIZER_H_
#define ENGINE_SENTENCEPIECE_NORMALIZER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/byte_trie.h"
#include "engine/sentencepiece_file.h"

namespace reprise {

// Immutable after construction; thread-safe.
class SentencePieceNormalizer {
 public:
  // Keeps what it needs of `spec`. InvalidArgument if the rules are malformed.
  static absl::StatusOr<SentencePieceNormalizer> Create(
      const SentencePieceSpec& spec);

  // `text`, valid UTF-8: characters replaced by the rules, spaces removed and
  // added and escaped as the file says. InvalidArgument if it grows to more
  // than 4 * kMaxTextBytes.
  absl::StatusOr<std::string> Apply(std::string_view text) const;

 private:
  // A beginning of the text and what it becomes.
  struct Prefix {
    size_t size = 0;
    std::string_view normal;
  };

  SentencePieceNormalizer() = default;
  absl::Status ReadRules(std::string_view charsmap);
  Prefix NextPrefix(std::string_view text) const;
  void Append(std::string_view normal, std::string* out) const;

  bool add_dummy_prefix_ = false;
  bool remove_extra_whitespaces_ = false;
  std::string_view space_;  // how a space is written
  ByteTrie user_defined_;   // pieces that are left as they are

  // The rules: a double-array trie (Darts-clone, Susumu Yata) from texts to
  // offsets in replacements_, where each ends with a NUL.
  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace reprise

#endif  // ENGINE_SENTENCEPIECE_NORMALIZER_H_
