#include "client/sanitise.h"

#include "engine/base/utf8.h"

namespace reprise {
namespace {

// `character` is well-formed.
bool IsControl(std::string_view character) {
  const char32_t code = DecodeUtf8Character(character);
  if (code == '\n' || code == '\t') return false;
  // U+0080 to U+009F: C1, which some terminals obey as they do ESC [.
  return code < 0x20 || (code >= 0x7f && code <= 0x9f);
}

}  // namespace

std::string SanitiseForTerminal(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const Utf8Unit unit = NextUtf8(text);
    const std::string_view part = text.substr(0, unit.size);
    const bool harmless = unit.kind == Utf8Unit::kCharacter && !IsControl(part);
    shown.append(harmless ? part : kReplacementCharacter);
    text.remove_prefix(unit.size);
  }
  return shown;
}

}  // namespace reprise
