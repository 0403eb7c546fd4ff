// Which files of a model's folder are its tokenizer.
#ifndef ENGINE_LOAD_TOKENIZER_H_
#define ENGINE_LOAD_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/tokenizer.h"

namespace reprise {

// Most ids of a model that reads raw bytes: room for special tokens and padding
// behind the bytes. A larger vocabulary was made with a tokenizer.
inline constexpr int64_t kMaxByteVocabulary = 512;

// The first of these that the folder has, all others are ignored:
//   1. tokenizer.json        Hugging Face's, byte-pair encoding
//   2. tokenizer.model       SentencePiece's
//   3. rwkv_vocab_*.txt      RWKV World's
//   4. nothing, and a vocabulary of 256..kMaxByteVocabulary: token id = byte
// NotFound if there is none; the message names what was looked for.
// InvalidArgument, naming the file and the field, for one that is malformed,
// too large, unsupported or has ids past `vocab_size`, for two vocabularies of
// RWKV, and for a folder that has files of another tokenizer and none of these.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    const std::string& model_dir, int64_t vocab_size);

}  // namespace reprise

#endif  // ENGINE_LOAD_TOKENIZER_H_
