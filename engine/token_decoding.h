// How the name of a token in a vocabulary becomes bytes of text.
#ifndef ENGINE_TOKEN_DECODING_H_
#define ENGINE_TOKEN_DECODING_H_

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tokenizer.h"

namespace reprise {

// The alphabet of byte-level vocabularies, as GPT-2 began it: printable Latin-1
// bytes stand for themselves, the 68 others for U+0100 and up, in order.
std::array<char32_t, 256> ByteAlphabet();

// The byte that a name of the form "<0x0A>" stands for.
std::optional<uint8_t> ByteOfName(std::string_view name);
std::string NameOfByte(uint8_t byte);

struct TokenDecoding {
  // Names are written in the byte alphabet. Nothing else applies then.
  bool byte_level = false;
  // Names like "<0x0A>" stand for a byte.
  bool byte_fallback = false;
  // (from, to), done one after the other.
  std::vector<std::pair<std::string, std::string>> replacements;
  DecodingRules rules;
};

// The bytes of the token called `name`, valid UTF-8. A byte-level name with a
// character outside the alphabet stands for itself, as in the tokenizers
// library.
std::string BytesOfToken(const TokenDecoding& decoding, std::string_view name);

}  // namespace reprise

#endif  // ENGINE_TOKEN_DECODING_H_
