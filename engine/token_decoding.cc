#include "engine/token_decoding.h"

#include <cstdint>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "engine/base/bytes.h"
#include "engine/base/utf8.h"

namespace reprise {
namespace {

constexpr char32_t kAlphabetEnd = 0x144;

std::string BytesOfByteLevelName(std::string_view name) {
  static const auto byte_of = [] {
    std::array<int, kAlphabetEnd> table;
    table.fill(-1);
    const std::array<char32_t, 256> alphabet = ByteAlphabet();
    for (int byte = 0; byte < 256; ++byte) table[alphabet[byte]] = byte;
    return table;
  }();
  std::string bytes;
  for (std::string_view rest = name; !rest.empty();) {
    const size_t size = NextUtf8(rest).size;
    const char32_t code = DecodeUtf8Character(rest.substr(0, size));
    if (code >= byte_of.size() || byte_of[code] < 0) return std::string(name);
    bytes += static_cast<char>(byte_of[code]);
    rest.remove_prefix(size);
  }
  return bytes;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

std::array<char32_t, 256> ByteAlphabet() {
  std::array<char32_t, 256> alphabet;
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    alphabet[byte] = printable ? byte : next++;
  }
  return alphabet;
}

std::optional<uint8_t> ByteOfName(std::string_view name) {
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') {
    return std::nullopt;
  }
  const int high = HexDigit(name[3]);
  const int low = HexDigit(name[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<uint8_t>(high << 4 | low);
}

std::string NameOfByte(uint8_t byte) {
  return absl::StrFormat("<0x%02X>", byte);
}

std::string BytesOfToken(const TokenDecoding& decoding, std::string_view name) {
  if (decoding.byte_level) return BytesOfByteLevelName(name);
  if (decoding.byte_fallback) {
    if (const auto byte = ByteOfName(name); byte.has_value()) {
      return std::string(1, static_cast<char>(*byte));
    }
  }
  std::string bytes(name);
  for (const auto& [from, to] : decoding.replacements) {
    bytes = absl::StrReplaceAll(bytes, {{from, to}});
  }
  return bytes;
}

}  // namespace reprise
