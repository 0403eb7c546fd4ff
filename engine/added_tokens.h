// Tokens that are found in the text by name before anything else is done with
// it: special tokens, and others that were added to a vocabulary.
#ifndef ENGINE_ADDED_TOKENS_H_
#define ENGINE_ADDED_TOKENS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/byte_trie.h"

namespace reprise {

struct AddedToken {
  int32_t id = 0;
  std::string content;  // 1..kMaxAddedTokenBytes, valid UTF-8
  bool special = false;
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and after it
  bool single_word = false;  // not inside a word
  bool normalized = false;   // looked for in the normalised text
};

// Searching takes up to this many look-ups a byte.
inline constexpr size_t kMaxAddedTokenBytes = 256;

// Immutable after construction; thread-safe.
class AddedTokenMatcher {
 public:
  // Of tokens with the same content the first one counts.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  // Cuts `text`, valid UTF-8, at the tokens in it, from the left, the longest
  // first, and calls `piece` for each token (with its id) and each text
  // between, in order, never with an empty text. Special tokens are found only
  // if `allow_special`. Stops at the first error and returns it.
  absl::Status Split(
      std::string_view text, bool allow_special,
      absl::FunctionRef<absl::Status(std::string_view, std::optional<int32_t>)>
          piece) const;

 private:
  // The longest token that `text` begins with.
  const AddedToken* Longest(std::string_view text, bool allow_special) const;

  std::vector<AddedToken> tokens_;
  ByteTrie trie_;  // of indices into tokens_
};

}  // namespace reprise

#endif  // ENGINE_ADDED_TOKENS_H_
