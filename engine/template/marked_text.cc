#include "engine/template/marked_text.h"

#include <utf8proc.h>

#include <algorithm>

namespace reprise::jinja {
namespace {

utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(Unmarked(c)));
}

template <typename Change>
Text ChangeEach(TextView text, Change change) {
  Text changed;
  changed.reserve(text.size());
  for (const char32_t c : text) changed += change(c);
  return changed;
}

// `change` on the code point alone.
char32_t KeepMark(char32_t c, utf8proc_int32_t (*change)(utf8proc_int32_t)) {
  const auto code = static_cast<utf8proc_int32_t>(Unmarked(c));
  return static_cast<char32_t>(change(code)) | (c & kMarks);
}

bool Contains(TextView characters, char32_t c) {
  return std::any_of(characters.begin(), characters.end(), [c](char32_t other) {
    return Unmarked(other) == Unmarked(c);
  });
}

// What str.splitlines cuts at.
bool IsLineEnd(char32_t c) {
  const char32_t code = Unmarked(c);
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) ||
         code == 0x85 || code == 0x2028 || code == 0x2029;
}

}  // namespace

// ---- UTF-8 ------------------------------------------------------------------

Text FromUtf8(std::string_view utf8, bool marked) {
  const char32_t mark = marked ? kMark : 0;
  Text text;
  text.reserve(utf8.size());
  for (size_t i = 0; i < utf8.size();) {
    const auto lead = static_cast<unsigned char>(utf8[i]);
    const int more = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    char32_t code = more == 0 ? lead : lead & (0x3Fu >> more);
    for (int k = 1; k <= more && i + k < utf8.size(); ++k) {
      code = code << 6 | (static_cast<unsigned char>(utf8[i + k]) & 0x3Fu);
    }
    text += code | mark;
    i += static_cast<size_t>(more) + 1;
  }
  return text;
}

void AppendUtf8(char32_t c, std::string* out) {
  const char32_t code = Unmarked(c);
  const auto put = [out](char32_t byte) { *out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

std::string ToUtf8(TextView text) {
  std::string utf8;
  utf8.reserve(text.size());
  for (const char32_t c : text) AppendUtf8(c, &utf8);
  return utf8;
}

// ---- Comparing and finding --------------------------------------------------

int Compare(TextView a, TextView b) {
  const size_t common = std::min(a.size(), b.size());
  for (size_t i = 0; i < common; ++i) {
    if (Unmarked(a[i]) == Unmarked(b[i])) continue;
    return Unmarked(a[i]) < Unmarked(b[i]) ? -1 : 1;
  }
  return a.size() == b.size() ? 0 : a.size() < b.size() ? -1 : 1;
}

bool Equal(TextView a, TextView b) {
  return a.size() == b.size() && Compare(a, b) == 0;
}

bool StartsWith(TextView text, TextView start) {
  return text.size() >= start.size() &&
         Equal(text.substr(0, start.size()), start);
}

bool EndsWith(TextView text, TextView end) {
  return text.size() >= end.size() &&
         Equal(text.substr(text.size() - end.size()), end);
}

Finder::Finder(TextView what) : what_(what) {
  if (what_.size() == 1) return;
  border_.assign(what_.size(), 0);
  size_t length = 0;
  for (size_t i = 1; i < what_.size(); ++i) {
    while (length > 0 && Unmarked(what_[i]) != Unmarked(what_[length])) {
      length = border_[length - 1];
    }
    if (Unmarked(what_[i]) == Unmarked(what_[length])) ++length;
    border_[i] = length;
  }
}

size_t Finder::Next(TextView text, size_t from) const {
  size_t matched = 0;
  for (size_t i = from; i < text.size(); ++i) {
    const char32_t c = Unmarked(text[i]);
    while (matched > 0 && c != Unmarked(what_[matched])) {
      matched = border_[matched - 1];
    }
    if (c == Unmarked(what_[matched])) ++matched;
    if (matched == what_.size()) return i + 1 - matched;
  }
  return TextView::npos;
}

// ---- Characters -------------------------------------------------------------

// Bidirectional type WS, B or S, or category Zs.
bool IsSpace(char32_t c) {
  const char32_t code = Unmarked(c);
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) ||
         code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool IsPrintable(char32_t c) {
  if (Unmarked(c) == ' ') return true;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool IsUpper(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LU; }
bool IsLower(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LL; }
bool IsLetter(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

char32_t ToUpper(char32_t c) { return KeepMark(c, utf8proc_toupper); }
char32_t ToLower(char32_t c) { return KeepMark(c, utf8proc_tolower); }
char32_t ToTitle(char32_t c) { return KeepMark(c, utf8proc_totitle); }

Text Upper(TextView text) { return ChangeEach(text, ToUpper); }
Text Lower(TextView text) { return ChangeEach(text, ToLower); }

Text Capitalize(TextView text) {
  Text changed = Lower(text);
  if (!changed.empty()) changed[0] = ToTitle(text[0]);
  return changed;
}

Text TitleWords(TextView text) {
  bool inside = false;  // a word, so that the next letter is a small one
  return ChangeEach(text, [&inside](char32_t c) {
    const char32_t changed = inside ? ToLower(c) : ToTitle(c);
    inside = IsUpper(c) || IsLower(c) || Category(c) == UTF8PROC_CATEGORY_LT;
    return changed;
  });
}

// ---- Cutting ----------------------------------------------------------------

TextView Strip(TextView text, std::optional<TextView> characters, Side side) {
  const auto goes = [&characters](char32_t c) {
    return characters.has_value() ? Contains(*characters, c) : IsSpace(c);
  };
  if (side != Side::kRight) {
    while (!text.empty() && goes(text.front())) text.remove_prefix(1);
  }
  if (side != Side::kLeft) {
    while (!text.empty() && goes(text.back())) text.remove_suffix(1);
  }
  return text;
}

std::vector<TextView> SplitWords(TextView text, int64_t limit) {
  std::vector<TextView> words;
  text = Strip(text, std::nullopt, Side::kLeft);
  while (!text.empty()) {
    if (static_cast<int64_t>(words.size()) == limit) {
      words.push_back(text);
      break;
    }
    const size_t size = static_cast<size_t>(
        std::find_if(text.begin(), text.end(), IsSpace) - text.begin());
    words.push_back(text.substr(0, size));
    text = Strip(text.substr(size), std::nullopt, Side::kLeft);
  }
  return words;
}

std::vector<TextView> SplitAt(TextView text, TextView separator,
                              int64_t limit) {
  std::vector<TextView> parts;
  size_t begin = 0;
  for (const size_t place : FindAll(text, separator, limit)) {
    parts.push_back(text.substr(begin, place - begin));
    begin = place + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<TextView> SplitLines(TextView text) {
  std::vector<TextView> lines;
  while (!text.empty()) {
    const size_t size = static_cast<size_t>(
        std::find_if(text.begin(), text.end(), IsLineEnd) - text.begin());
    lines.push_back(text.substr(0, size));
    if (size == text.size()) break;
    const bool pair = Unmarked(text[size]) == '\r' && size + 1 < text.size() &&
                      Unmarked(text[size + 1]) == '\n';
    text.remove_prefix(size + (pair ? 2 : 1));
  }
  return lines;
}

std::vector<size_t> FindAll(TextView text, TextView what, int64_t limit) {
  std::vector<size_t> places;
  const auto more = [&] {
    return limit < 0 || static_cast<int64_t>(places.size()) < limit;
  };
  if (what.empty()) {
    for (size_t i = 0; i <= text.size() && more(); ++i) places.push_back(i);
    return places;
  }
  const Finder finder(what);
  for (size_t at = 0; more(); at = places.back() + what.size()) {
    const size_t place = finder.Next(text, at);
    if (place == TextView::npos) break;
    places.push_back(place);
  }
  return places;
}

Text ReplaceAt(TextView text, const std::vector<size_t>& places,
               size_t what_size, TextView with) {
  Text replaced;
  size_t done = 0;
  for (const size_t place : places) {
    replaced += text.substr(done, place - done);
    replaced += with;
    done = place + what_size;
  }
  replaced += text.substr(done);
  return replaced;
}

}  // namespace reprise::jinja
