// The tokenizer of a tokenizer.model: SentencePiece's byte-pair encoding, as
// Llama 2, Mistral and Gemma have it.
#ifndef ENGINE_SENTENCEPIECE_TOKENIZER_H_
#define ENGINE_SENTENCEPIECE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/tokenizer.h"

namespace reprise {

// Encodes as the library does; and, if special tokens are allowed, finds the
// names of control pieces (<s>, </s>) in the text, which the library never
// does. Errors as ParseSentencePieceModel and SentencePieceNormalizer, and
// InvalidArgument for a piece with a character that is no piece itself.
absl::StatusOr<std::unique_ptr<Tokenizer>> CreateSentencePieceTokenizer(
    std::string_view contents, int64_t vocab_size);

}  // namespace reprise

#endif  // ENGINE_SENTENCEPIECE_TOKENIZER_H_
