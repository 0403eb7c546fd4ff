#include "engine/python_literal.h"

#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"

namespace reprise {
namespace {

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("has ", parts...));
}

std::optional<uint32_t> ParseHex(std::string_view digits) {
  uint32_t value = 0;
  for (const char c : digits) {
    const char lower = static_cast<char>(c | 0x20);
    if (c >= '0' && c <= '9') {
      value = value << 4 | static_cast<uint32_t>(c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      value = value << 4 | static_cast<uint32_t>(lower - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return value;
}

// The byte that an escape of one letter stands for.
std::optional<char> SimpleEscape(char letter) {
  switch (letter) {
    case '\\':
    case '\'':
    case '"':
      return letter;
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'v':
      return '\v';
    default:
      return std::nullopt;
  }
}

// Appends what the escape at the beginning of `rest` (behind the backslash)
// stands for, and removes it.
absl::Status TakeEscape(std::string_view& rest, bool is_bytes,
                        std::string* out) {
  if (rest.empty()) return Bad("a backslash at the end of its token");
  const char letter = rest[0];
  rest.remove_prefix(1);
  if (const auto simple = SimpleEscape(letter); simple.has_value()) {
    *out += *simple;
    return absl::OkStatus();
  }
  size_t digits = 0;
  if (letter == 'x') digits = 2;
  if (letter == 'u' && !is_bytes) digits = 4;
  if (letter == 'U' && !is_bytes) digits = 8;
  if (digits == 0) {
    return Bad("an unknown escape, backslash and byte ",
               static_cast<int>(static_cast<uint8_t>(letter)));
  }
  const auto code =
      rest.size() < digits ? std::nullopt : ParseHex(rest.substr(0, digits));
  if (!code.has_value()) return Bad("an escape without its hex digits");
  rest.remove_prefix(digits);
  if (is_bytes) {
    *out += static_cast<char>(*code);
  } else if (!AppendUtf8(*code, out)) {
    return Bad("an escape for ", *code, ", which is no character");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ParsePythonLiteral(std::string_view literal) {
  const bool is_bytes = literal.starts_with('b');
  if (is_bytes) literal.remove_prefix(1);
  const bool quoted = literal.size() >= 2 &&
                      (literal[0] == '\'' || literal[0] == '"') &&
                      literal.front() == literal.back();
  if (!quoted) return Bad("a token that is not in quotes");
  const char quote = literal[0];
  std::string_view rest = literal.substr(1, literal.size() - 2);
  if (FindInvalidUtf8(rest) != std::string_view::npos) {
    return Bad("a token that is not UTF-8");
  }
  std::string bytes;
  while (!rest.empty()) {
    const char c = rest[0];
    rest.remove_prefix(1);
    if (c == '\\') {
      RETURN_IF_ERROR(TakeEscape(rest, is_bytes, &bytes));
    } else if (c == quote || (is_bytes && (c & 0x80) != 0)) {
      return Bad("a byte in its token that must be escaped: ",
                 static_cast<int>(static_cast<uint8_t>(c)));
    } else {
      bytes += c;
    }
  }
  return bytes;
}

}  // namespace reprise
