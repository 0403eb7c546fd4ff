// UTF-8 for the command line: whether a text may be sent, and what of it may
// be shown.
#ifndef CLIENT_UTF8_H_
#define CLIENT_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace reprise {

// Bytes of the well-formed character that `text` begins with; 0 if there is
// none (Unicode 15, table 3-7: no overlong forms, no surrogates).
size_t Utf8CharacterLength(std::string_view text);

// Where the first byte that is not part of a well-formed character stands;
// text.size() if all are.
size_t ValidUtf8Prefix(std::string_view text);

// `text` without what a terminal would obey instead of show: control characters
// (C0 but newline and tab, DEL, C1) and broken UTF-8 become U+FFFD. Text comes
// from a model, and an escape sequence in it could retitle, reprogram or fake
// the user's terminal.
std::string SanitiseForTerminal(std::string_view text);

}  // namespace reprise

#endif  // CLIENT_UTF8_H_
