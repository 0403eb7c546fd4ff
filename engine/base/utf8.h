// UTF-8 as Unicode 15, section 3.9 defines it: well-formed characters, and the
// maximal invalid parts between them.
#ifndef ENGINE_BASE_UTF8_H_
#define ENGINE_BASE_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace reprise {

// U+FFFD, what an invalid part is shown as.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

struct Utf8Unit {
  enum Kind {
    kCharacter,   // one well-formed character
    kInvalid,     // one maximal invalid part
    kUnfinished,  // the text ends inside what may become a character
  };
  Kind kind = kCharacter;
  size_t size = 0;  // bytes, 1..4 (1..3 unless a character)
};

// What `text`, which is not empty, begins with.
Utf8Unit NextUtf8(std::string_view text);

// Whether there is well-formed text with that byte in it.
constexpr bool OccursInUtf8(int byte) {
  return byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
}

// Offset of the first byte that is not part of a well-formed character; npos if
// the whole text is valid.
size_t FindInvalidUtf8(std::string_view text);

enum class Utf8Replacement {
  kMaximalPart,  // U+FFFD stands for one maximal invalid part
  kEachByte,     // and for each of its bytes
};

// Appends `bytes` to `out` with U+FFFD for what is invalid. Returns how many
// bytes at the end, 0..3, were left out because their character is unfinished.
size_t AppendValidUtf8(std::string_view bytes, Utf8Replacement replacement,
                       std::string* out);

// The code point that `character`, well-formed, encodes.
char32_t DecodeUtf8Character(std::string_view character);

// Appends the character `code` as UTF-8. False, and nothing done, if it is a
// surrogate or past U+10FFFF.
bool AppendUtf8(char32_t code, std::string* out);

}  // namespace reprise

#endif  // ENGINE_BASE_UTF8_H_
