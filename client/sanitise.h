// What of a text may be shown on a terminal.
#ifndef CLIENT_SANITISE_H_
#define CLIENT_SANITISE_H_

#include <string>
#include <string_view>

namespace reprise {

// `text` without what a terminal would obey instead of show: control characters
// (C0 but newline and tab, DEL, C1) and broken UTF-8 become U+FFFD. Text comes
// from a model, and an escape sequence in it could retitle, reprogram or fake
// the user's terminal.
std::string SanitiseForTerminal(std::string_view text);

}  // namespace reprise

#endif  // CLIENT_SANITISE_H_
