// Unicode normalisation form C, through utf8proc.
#ifndef ENGINE_NFC_H_
#define ENGINE_NFC_H_

#include <string>
#include <string_view>

namespace reprise {

// The canonical composition of `text`, which is valid UTF-8. Takes time n log n
// at most, whatever the text.
std::string NormalizeNfc(std::string_view text);

}  // namespace reprise

#endif  // ENGINE_NFC_H_
