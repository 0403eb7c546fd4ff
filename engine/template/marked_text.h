// Text as templates see it: code points, as in Python, each of which remembers
// whether it came from a request.
//
// The mark is a bit of the character, above the code points, so it goes
// wherever the character goes: through slices, replacements, joins, changes of
// case. That is how a rendered prompt still says which of its parts are a
// user's words, in which the names of special tokens mean nothing. To
// everything that compares or searches, a character with a mark equals one
// without.
#ifndef ENGINE_TEMPLATE_MARKED_TEXT_H_
#define ENGINE_TEMPLATE_MARKED_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::jinja {

// Do not compare these with ==, which sees the marks: Equal does not.
using Text = std::u32string;
using TextView = std::u32string_view;

inline constexpr char32_t kMark = 0x80000000;
// A second kind of mark, for one character that is to be found again.
inline constexpr char32_t kPlaceMark = 0x40000000;
inline constexpr char32_t kMarks = kMark | kPlaceMark;
constexpr char32_t Unmarked(char32_t c) { return c & ~kMarks; }
constexpr bool IsMarked(char32_t c) { return (c & kMark) != 0; }

// `utf8` is valid UTF-8.
Text FromUtf8(std::string_view utf8, bool marked = false);
std::string ToUtf8(TextView text);
void AppendUtf8(char32_t c, std::string* out);

// By code points: negative, zero or positive.
int Compare(TextView a, TextView b);
bool Equal(TextView a, TextView b);
bool StartsWith(TextView text, TextView start);
bool EndsWith(TextView text, TextView end);

// Finds one text in others, in time that is linear in both (Knuth, Morris and
// Pratt), whatever they are made of.
class Finder {
 public:
  // `what`, which is not empty, must outlive the finder.
  explicit Finder(TextView what);

  // The first place at or after `from`; npos if there is none.
  size_t Next(TextView text, size_t from) const;

 private:
  TextView what_;
  std::vector<size_t> border_;  // of each prefix; empty for one character
};

// As str.isspace, for one character.
bool IsSpace(char32_t c);
// As str.isprintable, for one character.
bool IsPrintable(char32_t c);
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsLetter(char32_t c);

// Case by character: what Unicode turns into several characters (a German
// sharp s in capitals) stays as it is. Marks stay.
char32_t ToUpper(char32_t c);
char32_t ToLower(char32_t c);
char32_t ToTitle(char32_t c);
Text Upper(TextView text);
Text Lower(TextView text);
Text Capitalize(TextView text);  // str.capitalize
Text TitleWords(TextView text);  // str.title

enum class Side { kLeft, kRight, kBoth };
// Without the characters of `characters` (white space if there is none) at its
// ends.
TextView Strip(TextView text, std::optional<TextView> characters, Side side);

// str.split without a separator: the words between white space, at most
// `limit` of them and then the rest as it is; all if it is negative.
std::vector<TextView> SplitWords(TextView text, int64_t limit);
// str.split with a separator, which is not empty.
std::vector<TextView> SplitAt(TextView text, TextView separator, int64_t limit);
// str.splitlines, without the ends of lines.
std::vector<TextView> SplitLines(TextView text);

// The places where str.replace puts something, `limit` at most if it is not
// negative. An empty `what` is found before every character and at the end.
std::vector<size_t> FindAll(TextView text, TextView what, int64_t limit);
Text ReplaceAt(TextView text, const std::vector<size_t>& places,
               size_t what_size, TextView with);

}  // namespace reprise::jinja

#endif  // ENGINE_TEMPLATE_MARKED_TEXT_H_
