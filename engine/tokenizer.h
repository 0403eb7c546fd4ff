// Text to token ids and back.
//
// A tokenizer.json, where the model's folder has one, decides; a model without
// one, with a vocabulary of 256 to 512, reads raw bytes (token id = byte).
#ifndef ENGINE_TOKENIZER_H_
#define ENGINE_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace reprise {

// Longest text that Encode takes, whatever the size that requests may have. It
// bounds the memory of one call to about 40 bytes for each of the text's.
inline constexpr size_t kMaxTextBytes = 16 << 20;

// Immutable after construction; thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The ids of `text`. Names of special tokens inside it are plain text unless
  // `allow_special`. No token is added before or after. InvalidArgument if
  // `text` is not UTF-8 (byte tokenizers take any bytes), is longer than
  // kMaxTextBytes or the pattern gives up on it. Takes time n log n.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(
      std::string_view text, bool allow_special) const = 0;

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

  virtual std::string_view kind() const = 0;  // "bytes", "bpe"
};

// Most ids of a model that reads raw bytes: room for special tokens and padding
// behind the bytes. A larger vocabulary was made with a tokenizer.
inline constexpr int64_t kMaxByteVocabulary = 512;

// NotFound if the folder has no tokenizer and `vocab_size` is not in
// 256..kMaxByteVocabulary;
// InvalidArgument, naming the field, for one that is malformed, unsupported or
// has ids past `vocab_size`; also for a folder with another tokenizer's files
// and no tokenizer.json.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    const std::string& model_dir, int64_t vocab_size);

// The text of `ids`: broken UTF-8 becomes U+FFFD, one for each maximal invalid
// part (Unicode 15, section 3.9, "substitution of maximal subparts").
std::string Decode(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                   bool keep_special);

// Turns a stream of tokens into text that is always whole UTF-8: bytes of an
// unfinished character wait for the rest of it. Used by one thread at a time.
class StreamDecoder {
 public:
  // `pending` is what pending() was when the stream was put away.
  explicit StreamDecoder(const Tokenizer& tokenizer,
                         std::string_view pending = {});

  // The text that became whole with this token; may be empty. Special tokens
  // add none unless `keep_special`.
  std::string Push(int32_t token, bool keep_special = false);

  // Bytes of a character that is not whole yet, 0..3.
  const std::string& pending() const { return pending_; }

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;
};

}  // namespace reprise

#endif  // ENGINE_TOKENIZER_H_
