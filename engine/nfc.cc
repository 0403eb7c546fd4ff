#include "engine/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/base/log.h"
#include "engine/base/utf8.h"

namespace reprise {
namespace {

// Below U+0300 every character is composed already and none combines with one
// before it: the text is its own normal form. U+0300 begins with byte CC.
bool IsBelowCombining(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0xCC; });
}

// Full canonical decomposition of every character, marks not yet in order.
std::vector<int32_t> Decompose(std::string_view text) {
  std::vector<int32_t> codes;
  codes.reserve(text.size() + 1);
  while (!text.empty()) {
    const size_t size = NextUtf8(text).size;
    const auto code =
        static_cast<int32_t>(DecodeUtf8Character(text.substr(0, size)));
    int32_t parts[32];
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        code, parts, std::size(parts), UTF8PROC_DECOMPOSE, nullptr);
    CHECK(count >= 0 && count <= static_cast<ptrdiff_t>(std::size(parts)));
    codes.insert(codes.end(), parts, parts + count);
    text.remove_prefix(size);
  }
  return codes;
}

int CombiningClass(int32_t code) {
  return utf8proc_get_property(code)->combining_class;
}

// utf8proc_decompose does this by swapping neighbours: quadratic in the length
// of a run of marks, so a megabyte of them would take hours.
void OrderMarks(std::vector<int32_t>* codes) {
  const auto is_mark = [](int32_t code) { return CombiningClass(code) != 0; };
  auto begin = codes->begin();
  while (true) {
    begin = std::find_if(begin, codes->end(), is_mark);
    if (begin == codes->end()) return;
    const auto end = std::find_if_not(begin, codes->end(), is_mark);
    std::stable_sort(begin, end, [](int32_t a, int32_t b) {
      return CombiningClass(a) < CombiningClass(b);
    });
    begin = end;
  }
}

}  // namespace

std::string NormalizeNfc(std::string_view text) {
  if (IsBelowCombining(text)) return std::string(text);
  std::vector<int32_t> codes = Decompose(text);
  OrderMarks(&codes);
  const auto length = static_cast<utf8proc_ssize_t>(codes.size());
  codes.push_back(0);  // utf8proc_reencode ends the text with a NUL
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  const utf8proc_ssize_t size =
      utf8proc_reencode(codes.data(), length, options);
  CHECK(size >= 0);
  return std::string(reinterpret_cast<const char*>(codes.data()),
                     static_cast<size_t>(size));
}

}  // namespace reprise
