#include "engine/template/string_literal.h"

#include <charconv>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/template/marked_text.h"

namespace reprise::jinja {
namespace {

// The letters after a backslash that stand for one character, and those.
constexpr std::string_view kLetters = "\\'\"abfnrtv";
constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";

// Digits that follow \x, \u and \U; 0 for other letters.
size_t HexDigits(char letter) {
  return letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
}

// Reads `digits` in `base`, all of them; false if they are not such.
bool ReadCode(std::string_view digits, int base, uint32_t* code) {
  const char* end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, *code, base);
  return !digits.empty() && result.ec == std::errc() && result.ptr == end;
}

// Octal digits at the beginning of `text`, three at most.
size_t OctalDigits(std::string_view text) {
  size_t digits = 0;
  while (digits < 3 && digits < text.size() && text[digits] >= '0' &&
         text[digits] <= '7') {
    ++digits;
  }
  return digits;
}

}  // namespace

absl::StatusOr<std::string> UnescapeString(std::string_view quoted) {
  std::string text;
  while (!quoted.empty()) {
    if (quoted[0] != '\\' || quoted.size() == 1) {
      text += quoted[0];
      quoted.remove_prefix(1);
      continue;
    }
    const char letter = quoted[1];
    const size_t octal = OctalDigits(quoted.substr(1));
    const size_t hex = HexDigits(letter);
    if (letter == 'N') {
      return absl::UnimplementedError("\\N in a string is not supported");
    }
    if (octal == 0 && hex == 0) {
      const size_t known = kLetters.find(letter);
      if (known != std::string_view::npos) {
        text += kMeanings[known];
      } else if (letter != '\n') {  // which goes, with its backslash
        text += quoted.substr(0, 2);
      }
      quoted.remove_prefix(2);
      continue;
    }
    const size_t begin = octal > 0 ? 1 : 2;
    const size_t size = octal > 0 ? octal : hex;
    uint32_t code = 0;
    if (quoted.size() < begin + size ||
        !ReadCode(quoted.substr(begin, size), octal > 0 ? 8 : 16, &code) ||
        code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "bad escape in a string: ", ToAbsl(quoted.substr(0, begin + size))));
    }
    AppendUtf8(code, &text);
    quoted.remove_prefix(begin + size);
  }
  return text;
}

}  // namespace reprise::jinja
