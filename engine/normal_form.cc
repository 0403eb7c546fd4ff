#include "engine/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/tokenizer.h"

namespace reprise {
namespace {

bool IsCompatibility(NormalForm form) {
  return form == NormalForm::kNfkc || form == NormalForm::kNfkd;
}

bool IsComposed(NormalForm form) {
  return form == NormalForm::kNfc || form == NormalForm::kNfkc;
}

// Characters below U+0300 are composed already and none combines with one
// before it; ASCII is its own normal form in all four. U+0300 begins with byte
// CC.
bool IsItsOwnForm(NormalForm form, std::string_view text) {
  const int limit = form == NormalForm::kNfc ? 0xCC : 0x80;
  return std::all_of(text.begin(), text.end(), [limit](char c) {
    return static_cast<uint8_t>(c) < limit;
  });
}

// Full decomposition of every character, marks not yet in order.
absl::StatusOr<std::vector<int32_t>> Decompose(NormalForm form,
                                               std::string_view text) {
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_DECOMPOSE | (IsCompatibility(form) ? UTF8PROC_COMPAT : 0));
  std::vector<int32_t> codes;
  codes.reserve(text.size() + 1);
  while (!text.empty()) {
    const size_t size = NextUtf8(text).size;
    const auto code =
        static_cast<int32_t>(DecodeUtf8Character(text.substr(0, size)));
    int32_t parts[32];
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        code, parts, std::size(parts), options, nullptr);
    CHECK(count >= 0 && count <= static_cast<ptrdiff_t>(std::size(parts)));
    codes.insert(codes.end(), parts, parts + count);
    if (codes.size() > kMaxTextBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("the text grows to more than ", kMaxTextBytes,
                       " characters when it is normalised"));
    }
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

absl::StatusOr<std::string> Normalize(NormalForm form, std::string_view text) {
  if (IsItsOwnForm(form, text)) return std::string(text);
  ASSIGN_OR_RETURN(std::vector<int32_t> codes, Decompose(form, text));
  OrderMarks(&codes);
  const auto length = static_cast<utf8proc_ssize_t>(codes.size());
  codes.push_back(0);  // utf8proc_reencode ends the text with a NUL
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | (IsComposed(form) ? UTF8PROC_COMPOSE : 0));
  const utf8proc_ssize_t size =
      utf8proc_reencode(codes.data(), length, options);
  CHECK(size >= 0);
  return std::string(reinterpret_cast<const char*>(codes.data()),
                     static_cast<size_t>(size));
}

}  // namespace reprise
