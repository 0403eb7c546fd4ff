#include "client/utf8.h"

namespace reprise {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

unsigned char At(std::string_view text, size_t i) {
  return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
}

bool InRange(unsigned char byte, int low, int high) {
  return byte >= low && byte <= high;
}

// The range of the second byte shuts out overlong forms, surrogates and what
// lies beyond U+10FFFF.
bool SecondByteFits(unsigned char first, unsigned char second) {
  switch (first) {
    case 0xe0:
      return InRange(second, 0xa0, 0xbf);
    case 0xed:
      return InRange(second, 0x80, 0x9f);
    case 0xf0:
      return InRange(second, 0x90, 0xbf);
    case 0xf4:
      return InRange(second, 0x80, 0x8f);
    default:
      return InRange(second, 0x80, 0xbf);
  }
}

// `character` is well-formed.
bool IsControl(std::string_view character) {
  const unsigned char first = At(character, 0);
  if (first == '\n' || first == '\t') return false;
  if (first < 0x20 || first == 0x7f) return true;
  // U+0080 to U+009F: C1, which some terminals obey as they do ESC [.
  return first == 0xc2 && At(character, 1) <= 0x9f;
}

}  // namespace

size_t Utf8CharacterLength(std::string_view text) {
  if (text.empty()) return 0;
  const unsigned char first = At(text, 0);
  if (first < 0x80) return 1;
  size_t length = 0;
  if (InRange(first, 0xc2, 0xdf)) length = 2;
  if (InRange(first, 0xe0, 0xef)) length = 3;
  if (InRange(first, 0xf0, 0xf4)) length = 4;
  if (length == 0 || text.size() < length) return 0;
  if (!SecondByteFits(first, At(text, 1))) return 0;
  for (size_t i = 2; i < length; ++i) {
    if (!InRange(At(text, i), 0x80, 0xbf)) return 0;
  }
  return length;
}

size_t ValidUtf8Prefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const size_t length = Utf8CharacterLength(text.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return i;
}

std::string SanitiseForTerminal(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  size_t i = 0;
  while (i < text.size()) {
    const size_t length = Utf8CharacterLength(text.substr(i));
    const std::string_view character = text.substr(i, length);
    shown.append(length == 0 || IsControl(character) ? kReplacement
                                                     : character);
    i += length == 0 ? 1 : length;
  }
  return shown;
}

}  // namespace reprise
