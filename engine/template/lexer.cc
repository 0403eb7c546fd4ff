#include "engine/template/lexer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/template/budget.h"
#include "engine/template/marked_text.h"
#include "engine/template/string_literal.h"

namespace reprise::jinja {
namespace {

using Kind = Token::Kind;

constexpr std::array<std::string_view, 26> kOperators = {
    // Longer ones first.
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool IsNamePart(char c) { return IsNameStart(c) || IsDigit(c); }

// Bytes of white space, Unicode's too, at the beginning or end of `text`.
size_t SpaceAtStart(std::string_view text) {
  size_t bytes = 0;
  while (bytes < text.size()) {
    const size_t size = NextUtf8(text.substr(bytes)).size;
    if (!IsSpace(DecodeUtf8Character(text.substr(bytes, size)))) break;
    bytes += size;
  }
  return bytes;
}

size_t SpaceAtEnd(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && (text[begin] & 0xC0) == 0x80) --begin;
    if (!IsSpace(DecodeUtf8Character(text.substr(begin, end - begin)))) break;
    end = begin;
  }
  return text.size() - end;
}

// "\r\n" and "\r" become "\n", and one newline at the end goes.
std::string NormalizeNewlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (source.substr(i + 1).starts_with('\n')) ++i;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  absl::StatusOr<std::vector<Token>> Run();

 private:
  std::string_view rest() const { return source_.substr(at_); }
  bool Skip(std::string_view what);
  void Advance(size_t bytes);
  absl::Status Fail(std::string_view message) const {
    return ErrorAt(line_, absl::StatusCode::kInvalidArgument, message);
  }
  void Add(Kind kind, std::string text = "") {
    tokens_.push_back({kind, std::move(text), line_});
  }

  size_t FindTag() const;
  void AddData(size_t end);
  absl::Status ReadComment();
  absl::Status RefuseRaw() const;
  absl::Status ReadTag(bool block);
  bool SkipTagEnd(bool block);
  absl::Status ReadTagToken();
  absl::Status ReadNumber();
  absl::Status ReadString();
  absl::Status ReadOperator();
  // After the end of a block tag or comment; `minus` if it ended with "-".
  void TrimAfter(bool minus);

  const std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // what was last read ended with a newline
  std::string open_;         // brackets that are open inside a tag
  std::vector<Token> tokens_;
};

void Lexer::Advance(size_t bytes) {
  const std::string_view passed = source_.substr(at_, bytes);
  line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
  if (!passed.empty()) line_starts_ = passed.back() == '\n';
  at_ += passed.size();
}

bool Lexer::Skip(std::string_view what) {
  if (!rest().starts_with(what)) return false;
  Advance(what.size());
  return true;
}

// The next "{{", "{%" or "{#"; the end of the source if there is none.
size_t Lexer::FindTag() const {
  for (size_t i = at_; i + 1 < source_.size(); ++i) {
    if (source_[i] != '{') continue;
    const char next = source_[i + 1];
    if (next == '{' || next == '%' || next == '#') return i;
  }
  return source_.size();
}

// The text up to `end`, where a tag or the source's end is.
void Lexer::AddData(size_t end) {
  std::string_view text = source_.substr(at_, end - at_);
  const std::string_view tag = source_.substr(end);
  if (tag.size() > 2 && tag[2] == '-') {
    text.remove_suffix(SpaceAtEnd(text));
  } else if (!tag.empty() && tag[1] != '{' &&
             !(tag.size() > 2 && tag[2] == '+')) {
    const size_t newline = text.rfind('\n');
    const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
    if ((start > 0 || line_starts_) &&
        SpaceAtEnd(text) >= text.size() - start) {
      text = text.substr(0, start);
    }
  }
  if (!text.empty()) Add(Kind::kData, std::string(text));
  Advance(end - at_);
}

void Lexer::TrimAfter(bool minus) {
  if (minus) {
    Advance(SpaceAtStart(rest()));
  } else {
    Skip("\n");
  }
}

absl::Status Lexer::ReadComment() {
  size_t begin = at_ + 2;
  if (begin < source_.size() &&
      (source_[begin] == '-' || source_[begin] == '+')) {
    ++begin;
  }
  const size_t end = source_.find("#}", begin);
  if (end == std::string_view::npos) return Fail("a comment has no end");
  const bool minus = end > begin && source_[end - 1] == '-';
  const bool plus = end > begin && source_[end - 1] == '+';
  Advance(end + 2 - at_);
  if (!plus) TrimAfter(minus);
  return absl::OkStatus();
}

// {% raw %} would change how all that follows is cut.
absl::Status Lexer::RefuseRaw() const {
  std::string_view tag = rest().substr(2);
  if (tag.starts_with('-') || tag.starts_with('+')) tag.remove_prefix(1);
  tag.remove_prefix(SpaceAtStart(tag));
  if (!tag.starts_with("raw")) return absl::OkStatus();
  tag.remove_prefix(3);
  tag.remove_prefix(SpaceAtStart(tag));
  if (!tag.starts_with("%}") && !tag.starts_with("-%}")) {
    return absl::OkStatus();
  }
  return ErrorAt(line_, absl::StatusCode::kUnimplemented,
                 "'raw' blocks are not supported");
}

// Whether the tag ends here; then reads its end.
bool Lexer::SkipTagEnd(bool block) {
  if (!open_.empty()) return false;
  const std::string_view end = block ? "%}" : "}}";
  const bool minus =
      rest().starts_with('-') && rest().substr(1).starts_with(end);
  const bool plus =
      block && rest().starts_with('+') && rest().substr(1).starts_with(end);
  if (!minus && !plus && !rest().starts_with(end)) return false;
  Add(block ? Kind::kBlockEnd : Kind::kPrintEnd);
  Advance(end.size() + (minus || plus ? 1 : 0));
  if (block && !plus) {
    TrimAfter(minus);
  } else if (minus) {
    Advance(SpaceAtStart(rest()));
  }
  return true;
}

absl::Status Lexer::ReadTag(bool block) {
  Add(block ? Kind::kBlockBegin : Kind::kPrintBegin);
  Advance(2);
  if (rest().starts_with('-') || rest().starts_with('+')) Advance(1);
  while (true) {
    Advance(SpaceAtStart(rest()));
    if (at_ == source_.size()) return Fail("a tag has no end");
    if (SkipTagEnd(block)) return absl::OkStatus();
    RETURN_IF_ERROR(ReadTagToken());
  }
}

absl::Status Lexer::ReadTagToken() {
  const char c = rest().front();
  if (IsDigit(c)) return ReadNumber();
  if (c == '\'' || c == '"') return ReadString();
  if (!IsNameStart(c)) return ReadOperator();
  size_t size = 1;
  while (size < rest().size() && IsNamePart(rest()[size])) ++size;
  if (size > kMaxNameBytes) {
    return Fail(absl::StrCat("a name has ", size, " bytes (at most ",
                             kMaxNameBytes, ")"));
  }
  Add(Kind::kName, std::string(rest().substr(0, size)));
  Advance(size);
  return absl::OkStatus();
}

// Decimal only.
absl::Status Lexer::ReadNumber() {
  const std::string_view text = rest();
  const auto digits = [text](size_t i) {
    const size_t begin = i;
    while (i < text.size() && IsDigit(text[i])) ++i;
    return i - begin;
  };
  size_t size = digits(0);
  // "1.e" and "a.0.b" have no fraction; no attribute begins with a digit.
  bool real = false;
  if (size < text.size() && text[size] == '.' && digits(size + 1) > 0 &&
      (tokens_.back().kind != Kind::kOperator || tokens_.back().text != ".")) {
    size += 1 + digits(size + 1);
    real = true;
  }
  if (size < text.size() && (text[size] == 'e' || text[size] == 'E')) {
    const size_t sign = size + 1 < text.size() &&
                                (text[size + 1] == '+' || text[size + 1] == '-')
                            ? 1
                            : 0;
    if (digits(size + 1 + sign) > 0) {
      size += 1 + sign + digits(size + 1 + sign);
      real = true;
    }
  }
  if (size < text.size() && IsNamePart(text[size])) {
    return ErrorAt(line_, absl::StatusCode::kUnimplemented,
                   "numbers are decimal digits only here");
  }
  if (!real && size > 1 && text[0] == '0' &&
      text.substr(0, size).find_first_not_of('0') != std::string_view::npos) {
    return Fail("a number begins with 0");
  }
  Add(real ? Kind::kFloat : Kind::kInteger, std::string(text.substr(0, size)));
  Advance(size);
  return absl::OkStatus();
}

absl::Status Lexer::ReadString() {
  const char quote = rest().front();
  size_t end = 1;
  while (end < rest().size() && rest()[end] != quote) {
    end += rest()[end] == '\\' ? 2 : 1;
  }
  if (end >= rest().size()) return Fail("a string has no end");
  absl::StatusOr<std::string> text = UnescapeString(rest().substr(1, end - 1));
  if (!text.ok()) {
    return ErrorAt(line_, text.status().code(),
                   FromAbsl(text.status().message()));
  }
  Add(Kind::kString, *std::move(text));
  Advance(end + 1);
  return absl::OkStatus();
}

absl::Status Lexer::ReadOperator() {
  const auto found = std::find_if(
      kOperators.begin(), kOperators.end(),
      [this](std::string_view name) { return rest().starts_with(name); });
  if (found == kOperators.end()) {
    const std::string_view c = rest().substr(0, NextUtf8(rest()).size);
    return Fail(absl::StrCat("unexpected character '", ToAbsl(c), "'"));
  }
  const std::string_view name = *found;
  constexpr std::string_view kOpening = "([{";
  constexpr std::string_view kClosing = ")]}";
  if (kOpening.find(name) != std::string_view::npos) {
    open_ += kClosing[kOpening.find(name)];
  } else if (kClosing.find(name) != std::string_view::npos) {
    if (open_.empty() || open_.back() != name[0]) {
      return Fail(absl::StrCat("unexpected '", ToAbsl(name), "'"));
    }
    open_.pop_back();
  }
  Add(Kind::kOperator, std::string(name));
  Advance(name.size());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Token>> Lexer::Run() {
  while (at_ < source_.size()) {
    AddData(FindTag());
    if (at_ == source_.size()) break;
    if (rest()[1] == '#') {
      RETURN_IF_ERROR(ReadComment());
      continue;
    }
    const bool block = rest()[1] == '%';
    if (block) RETURN_IF_ERROR(RefuseRaw());
    RETURN_IF_ERROR(ReadTag(block));
  }
  Add(Kind::kEnd);
  return std::move(tokens_);
}

}  // namespace

absl::Status ErrorAt(int line, absl::StatusCode code,
                     std::string_view message) {
  return absl::Status(code, absl::StrCat("line ", line, ": ", ToAbsl(message)));
}

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(source.size(), " bytes are more than ", kMaxSourceBytes));
  }
  const size_t invalid = FindInvalidUtf8(source);
  if (invalid != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("not UTF-8: bad byte at offset ", invalid));
  }
  const std::string text = NormalizeNewlines(source);
  return Lexer(text).Run();
}

}  // namespace reprise::jinja
