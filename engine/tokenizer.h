// Text to token ids and back.
#ifndef ENGINE_TOKENIZER_H_
#define ENGINE_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reprise {

// Longest text that Encode takes, whatever the size that requests may have. It
// bounds the memory of one call to about 40 bytes for each of the text's.
inline constexpr size_t kMaxTextBytes = 16 << 20;

// For callers who take as many tokens as there are.
inline constexpr size_t kAnyTokens = std::numeric_limits<size_t>::max();

// What EncodeUpTo returns beyond its limit.
absl::Status TooManyTokensError(size_t max_tokens);

// InvalidArgument if `text` is longer than kMaxTextBytes.
absl::Status CheckTextSize(std::string_view text);
// The same for a text that is normalised: 4 * kMaxTextBytes, which is room for
// the metaspace (3 bytes) in place of every space.
absl::Status CheckNormalizedSize(size_t size);
// As CheckTextSize, and if it is not UTF-8, with the offset of the first bad
// byte.
absl::Status CheckText(std::string_view text);

// How a text begins and what is shown for bytes that are no UTF-8, as the
// libraries that define the tokenizers have it.
struct DecodingRules {
  // At most so many spaces are dropped from a text's beginning: those that
  // encoding had put there. See KeepsSpaces.
  int32_t leading_spaces = 0;
  // Of one token at most one of them.
  bool one_space_a_token = false;
  // All spaces of a text's first token are dropped.
  bool drop_first_spaces = false;
  // U+FFFD stands for each byte that is no UTF-8. Otherwise for each maximal
  // invalid part (Unicode 15, section 3.9, "substitution of maximal subparts").
  bool replace_each_byte = false;
};

// Immutable after construction; thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The ids of `text`. Names of special tokens inside it are plain text unless
  // `allow_special`. No token is added before or after. InvalidArgument if
  // `text` is not UTF-8 (byte tokenizers take any bytes), is longer than
  // kMaxTextBytes or the pattern gives up on it. Takes time n log n.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              bool allow_special) const {
    return EncodeUpTo(text, allow_special, kAnyTokens);
  }
  // The same, but ResourceExhausted if there are more than `max_tokens`, which
  // is found out without encoding much more than that of the text: a limit that
  // only the result is held against lets every text take the time of the
  // longest.
  virtual absl::StatusOr<std::vector<int32_t>> EncodeUpTo(
      std::string_view text, bool allow_special, size_t max_tokens) const = 0;

  // The bytes of one token; they may be part of a character. Empty for ids
  // that have none (past the vocabulary, unused).
  virtual std::string_view TokenBytes(int32_t id) const = 0;

  // Whether the token is a special one (end of text, say), whose name is not
  // part of the text.
  virtual bool IsSpecial(int32_t id) const = 0;

  // Number of ids: every id is in [0, vocab_size).
  virtual int64_t vocab_size() const = 0;

  // The id of the special or ordinary token of that exact name, if any. Names
  // are written as in the tokenizer's file ("\u0120the" for " the").
  virtual std::optional<int32_t> FindToken(std::string_view name) const = 0;

  // Equal for tokenizers that encode alike.
  virtual uint64_t fingerprint() const = 0;

  // "bytes", "bpe", "sentencepiece", "rwkv"
  virtual std::string_view kind() const = 0;

  virtual DecodingRules decoding_rules() const { return {}; }

  // Whether the token loses no space at a text's beginning, by no rule.
  virtual bool KeepsSpaces(int32_t /*id*/) const { return false; }
};

// The text of `ids`, from its beginning on. Special tokens add none unless
// `keep_special`.
std::string Decode(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                   bool keep_special);

// What is shown for `bytes`, the beginning of a character, when the rest of it
// does not come.
std::string ShowUnfinished(const Tokenizer& tokenizer, std::string_view bytes);

// Turns a stream of tokens into text that is always whole UTF-8: bytes of an
// unfinished character wait for the rest of it. Used by one thread at a time.
class StreamDecoder {
 public:
  // For a text that goes on. `pending` is what pending() was when the stream
  // was put away.
  explicit StreamDecoder(const Tokenizer& tokenizer,
                         std::string_view pending = {});
  // For a text that begins.
  static StreamDecoder AtStart(const Tokenizer& tokenizer);

  // The text that became whole with this token; may be empty. Special tokens
  // add none unless `keep_special`.
  std::string Push(int32_t token, bool keep_special = false);

  // Bytes of a character that is not whole yet, 0..3.
  const std::string& pending() const { return pending_; }

 private:
  // What is left of the bytes of `token` at the beginning of the text.
  std::string WithoutLeadingSpaces(int32_t token);

  const Tokenizer* tokenizer_;
  std::string pending_;
  DecodingRules rules_;  // as far as they still apply
};

}  // namespace reprise

#endif  // ENGINE_TOKENIZER_H_
