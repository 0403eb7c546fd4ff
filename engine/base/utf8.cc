#include "engine/base/utf8.h"

#include <cstdint>

namespace reprise {
namespace {

// Table 3-7 of the standard: the bytes that may follow a lead byte. Only the
// second byte's range depends on the lead (no overlong form, no surrogate,
// nothing past U+10FFFF); later ones are 80..BF.
struct Lead {
  size_t size = 0;  // 0 if no character begins with this byte
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xBF;
};

Lead ClassifyLead(uint8_t byte) {
  if (byte < 0x80) return {.size = 1};
  if (byte < 0xC2) return {};
  if (byte < 0xE0) return {.size = 2};
  if (byte == 0xE0) return {.size = 3, .second_min = 0xA0};
  if (byte == 0xED) return {.size = 3, .second_max = 0x9F};
  if (byte < 0xF0) return {.size = 3};
  if (byte == 0xF0) return {.size = 4, .second_min = 0x90};
  if (byte == 0xF4) return {.size = 4, .second_max = 0x8F};
  if (byte < 0xF4) return {.size = 4};
  return {};
}

}  // namespace

Utf8Unit NextUtf8(std::string_view text) {
  const Lead lead = ClassifyLead(static_cast<uint8_t>(text[0]));
  if (lead.size == 0) return {Utf8Unit::kInvalid, 1};
  for (size_t i = 1; i < lead.size; ++i) {
    if (i == text.size()) return {Utf8Unit::kUnfinished, i};
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t min = i == 1 ? lead.second_min : 0x80;
    const uint8_t max = i == 1 ? lead.second_max : 0xBF;
    if (byte < min || byte > max) return {Utf8Unit::kInvalid, i};
  }
  return {Utf8Unit::kCharacter, lead.size};
}

size_t FindInvalidUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Unit unit = NextUtf8(text.substr(at));
    if (unit.kind != Utf8Unit::kCharacter) return at;
    at += unit.size;
  }
  return std::string_view::npos;
}

size_t AppendValidUtf8(std::string_view bytes, Utf8Replacement replacement,
                       std::string* out) {
  while (!bytes.empty()) {
    const Utf8Unit unit = NextUtf8(bytes);
    if (unit.kind == Utf8Unit::kUnfinished) return unit.size;
    if (unit.kind == Utf8Unit::kCharacter) {
      out->append(bytes.substr(0, unit.size));
    } else {
      const size_t count =
          replacement == Utf8Replacement::kEachByte ? unit.size : 1;
      for (size_t i = 0; i < count; ++i) out->append(kReplacementCharacter);
    }
    bytes.remove_prefix(unit.size);
  }
  return 0;
}

char32_t DecodeUtf8Character(std::string_view character) {
  const auto lead = static_cast<uint8_t>(character[0]);
  // A lead byte of n > 1 bytes holds 7 - n bits, every other byte 6.
  char32_t code =
      character.size() == 1 ? lead : lead & (0x7F >> character.size());
  for (const char byte : character.substr(1)) code = code << 6 | (byte & 0x3F);
  return code;
}

bool AppendUtf8(char32_t code, std::string* out) {
  if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return false;
  if (code < 0x80) {
    *out += static_cast<char>(code);
    return true;
  }
  const int size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  // n ones and a zero lead, then 6 bits a byte.
  *out += static_cast<char>((0xF00 >> size & 0xFF) | code >> (6 * (size - 1)));
  for (int shift = 6 * (size - 2); shift >= 0; shift -= 6) {
    *out += static_cast<char>(0x80 | (code >> shift & 0x3F));
  }
  return true;
}

}  // namespace reprise
