// Reads and checks Hugging Face's tokenizer.json, as far as byte-level BPE.
#ifndef ENGINE_TOKENIZER_JSON_H_
#define ENGINE_TOKENIZER_JSON_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/added_tokens.h"

namespace reprise {

// One step of cutting the text into the pieces that BPE works on.
struct PreTokenizerStep {
  // Puts a space before a piece that does not begin with one, instead of
  // cutting.
  bool add_prefix_space = false;

  std::string pattern;
  bool literal = false;      // `pattern` is the text itself, not an expression
  bool keep_matched = true;  // matches of the pattern become pieces
  bool keep_between = true;  // and so does what is between them
};

// What a tokenizer.json says, in words of our own. All ids are distinct (but
// for added tokens that the vocabulary has under the same name) and in
// [0, vocab_size).
struct BpeSpec {
  // Names in the byte-level alphabet, where a character stands for a byte.
  std::vector<std::pair<std::string, int32_t>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;  // best first
  std::vector<AddedToken> added_tokens;
  std::vector<PreTokenizerStep> steps;
  bool nfc = false;            // the text is normalised first
  bool ignore_merges = false;  // a piece that is a token is not merged
};

// InvalidArgument, naming the field and its value, for a file that is
// malformed, too large or too deep, or asks for something not supported.
absl::StatusOr<BpeSpec> ParseTokenizerJson(std::string_view json,
                                           int64_t vocab_size);

}  // namespace reprise

#endif  // ENGINE_TOKENIZER_JSON_H_
