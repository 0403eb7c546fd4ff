// Reads and checks Hugging Face's tokenizer.json, as far as byte-pair encoding:
// byte-level (GPT-2, GPT-NeoX, Llama 3, Qwen) and with a metaspace and byte
// fallback (Llama 2, Mistral, Gemma).
#ifndef ENGINE_TOKENIZER_JSON_H_
#define ENGINE_TOKENIZER_JSON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/added_tokens.h"
#include "engine/pre_tokenizer.h"
#include "engine/text_normalizer.h"
#include "engine/token_decoding.h"

namespace reprise {

// What a tokenizer.json says, in words of our own. All ids are distinct (but
// for added tokens that the vocabulary has under the same name) and in
// [0, vocab_size).
struct BpeSpec {
  std::vector<std::pair<std::string, int32_t>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;  // best first
  std::vector<AddedToken> added_tokens;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> steps;
  // Names are in the byte-level alphabet, where a character stands for a byte.
  bool byte_level = false;
  // A character that is no token is written as tokens like "<0x0A>".
  bool byte_fallback = false;
  std::optional<std::string> unknown;  // in place of what has no token
  bool fuse_unknown = false;           // one for neighbours without a token
  bool ignore_merges = false;          // a piece that is a token is not merged
  TokenDecoding decoding;
};

// InvalidArgument, naming the field and its value, for a file that is
// malformed, too large or too deep, or asks for something not supported. The
// post-processor, truncation and padding are ignored: Encode adds no tokens.
absl::StatusOr<BpeSpec> ParseTokenizerJson(std::string_view json,
                                           int64_t vocab_size);

}  // namespace reprise

#endif  // ENGINE_TOKENIZER_JSON_H_
