#include "engine/template/format_value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"

namespace reprise::jinja {
namespace {

// `code` as a backslash, a letter and that many hexadecimal digits, with the
// mark of the character it is for.
void AppendEscape(char32_t mark, char letter, int digits, char32_t code,
                  Text* out) {
  std::array<char, 16> escape;
  const int size = std::snprintf(escape.data(), escape.size(), "\\%c%0*x",
                                 letter, digits, static_cast<unsigned>(code));
  for (int i = 0; i < size; ++i) {
    *out += static_cast<char32_t>(escape[static_cast<size_t>(i)]) | mark;
  }
}

void AppendPair(char32_t mark, char letter, Text* out) {
  *out += U'\\' | mark;
  *out += static_cast<char32_t>(letter) | mark;
}

// The letter that stands for a control character after a backslash; 0 if there
// is none.
char ShortEscape(char32_t c) {
  switch (Unmarked(c)) {
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    default:
      return 0;
  }
}

// repr() of a str.
void AppendQuoted(TextView text, Text* out) {
  const auto has = [text](char32_t quote) {
    return std::any_of(text.begin(), text.end(),
                       [quote](char32_t c) { return Unmarked(c) == quote; });
  };
  const char32_t quote = has(U'\'') && !has(U'"') ? U'"' : U'\'';
  *out += quote;
  for (const char32_t c : text) {
    const char32_t code = Unmarked(c);
    const char32_t mark = c & kMarks;
    if (code == quote || code == U'\\') {
      AppendPair(mark, static_cast<char>(code), out);
    } else if (const char letter = ShortEscape(c); letter != 0) {
      AppendPair(mark, letter, out);
    } else if (IsPrintable(c)) {
      *out += c;
    } else if (code < 0x100) {
      AppendEscape(mark, 'x', 2, code, out);
    } else if (code < 0x10000) {
      AppendEscape(mark, 'u', 4, code, out);
    } else {
      AppendEscape(mark, 'U', 8, code, out);
    }
  }
  *out += quote;
}

absl::Status AppendRepr(const Value& value, Budget& budget, Text* out);

absl::Status AppendItems(const Sequence& list, Budget& budget, Text* out) {
  const bool tuple = list.kind == SequenceKind::kTuple;
  if (!tuple && list.kind != SequenceKind::kList) {
    return absl::UnimplementedError(
        "printing a range, a generator or a view of a dict is not supported; "
        "make a list of it");
  }
  *out += tuple ? U'(' : U'[';
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) *out += U", ";
    RETURN_IF_ERROR(AppendRepr(list.items[i], budget, out));
  }
  if (tuple && list.items.size() == 1) *out += U',';
  *out += tuple ? U')' : U']';
  return absl::OkStatus();
}

// The value inside a list or dict; `out` may be long already, what is added is
// charged.
absl::Status AppendRepr(const Value& value, Budget& budget, Text* out) {
  if (const Text* text = value.text()) {
    RETURN_IF_ERROR(budget.Build(text->size() + 2));
    AppendQuoted(*text, out);
    return absl::OkStatus();
  }
  if (const Sequence* list = value.sequence()) {
    RETURN_IF_ERROR(budget.Build(2 * list->items.size() + 2));
    return AppendItems(*list, budget, out);
  }
  if (const Dict* map = value.dict()) {
    RETURN_IF_ERROR(budget.Build(4 * map->entries.size() + 2));
    *out += U'{';
    for (size_t i = 0; i < map->entries.size(); ++i) {
      if (i > 0) *out += U", ";
      RETURN_IF_ERROR(AppendRepr(map->entries[i].first, budget, out));
      *out += U": ";
      RETURN_IF_ERROR(AppendRepr(map->entries[i].second, budget, out));
    }
    *out += U'}';
    return absl::OkStatus();
  }
  if (value.undefined()) {
    *out += U"Undefined";
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Text text, ToText(value, budget));
  *out += text;
  return absl::OkStatus();
}

// ---- JSON -------------------------------------------------------------------

void AppendJsonString(TextView text, bool ensure_ascii, Text* out) {
  *out += U'"';
  for (const char32_t c : text) {
    const char32_t code = Unmarked(c);
    const char32_t mark = c & kMarks;
    if (code == U'"' || code == U'\\') {
      AppendPair(mark, static_cast<char>(code), out);
    } else if (const char letter = ShortEscape(c); letter != 0) {
      AppendPair(mark, letter, out);
    } else if (code == U'\b' || code == U'\f') {
      AppendPair(mark, code == U'\b' ? 'b' : 'f', out);
    } else if (code < 0x20 || (ensure_ascii && code > 0x7E && code < 0x10000)) {
      AppendEscape(mark, 'u', 4, code, out);
    } else if (ensure_ascii && code >= 0x10000) {
      AppendEscape(mark, 'u', 4, 0xD800 + ((code - 0x10000) >> 10), out);
      AppendEscape(mark, 'u', 4, 0xDC00 + ((code - 0x10000) & 0x3FF), out);
    } else {
      *out += c;
    }
  }
  *out += U'"';
}

class JsonWriter {
 public:
  JsonWriter(const JsonFormat& format, Budget& budget)
      : format_(format), budget_(budget) {}

  absl::Status Append(const Value& value);
  Text Take() { return std::move(out_); }

 private:
  absl::Status AppendList(const std::vector<Value>& items);
  absl::Status AppendDict(const Dict& dict);
  absl::Status AppendKey(const Value& key);
  absl::Status NewLine();

  const JsonFormat& format_;
  Budget& budget_;
  size_t level_ = 0;
  Text out_;
};

absl::Status JsonWriter::Append(const Value& value) {
  RETURN_IF_ERROR(budget_.Build(2 + format_.item_separator.size() +
                                format_.key_separator.size()));
  if (const Text* text = value.text()) {
    RETURN_IF_ERROR(budget_.Build(text->size()));
    AppendJsonString(*text, format_.ensure_ascii, &out_);
  } else if (value.none()) {
    out_ += U"null";
  } else if (const bool* flag = value.get<bool>()) {
    out_ += *flag ? U"true" : U"false";
  } else if (const int64_t* number = value.get<int64_t>()) {
    out_ += FromUtf8(std::to_string(*number));
  } else if (const double* real = value.get<double>()) {
    out_ += std::isnan(*real)   ? U"NaN"
            : std::isinf(*real) ? (*real < 0 ? U"-Infinity" : U"Infinity")
                                : FromUtf8(FloatText(*real));
  } else if (const Dict* dict = value.dict()) {
    return AppendDict(*dict);
  } else if (const Sequence* list = value.sequence();
             list != nullptr && (list->kind == SequenceKind::kList ||
                                 list->kind == SequenceKind::kTuple)) {
    return AppendList(list->items);
  } else if (value.undefined()) {
    return absl::InvalidArgumentError(*value.get<Undefined>()->reason);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("a ", ToAbsl(value.type()), " has no form in JSON"));
  }
  return absl::OkStatus();
}

absl::Status JsonWriter::NewLine() {
  if (!format_.indent.has_value()) return absl::OkStatus();
  RETURN_IF_ERROR(budget_.Build(1 + level_ * format_.indent->size()));
  out_ += U'\n';
  for (size_t i = 0; i < level_; ++i) out_ += *format_.indent;
  return absl::OkStatus();
}

absl::Status JsonWriter::AppendList(const std::vector<Value>& items) {
  out_ += U'[';
  ++level_;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out_ += format_.item_separator;
    RETURN_IF_ERROR(NewLine());
    RETURN_IF_ERROR(Append(items[i]));
  }
  --level_;
  if (!items.empty()) RETURN_IF_ERROR(NewLine());
  out_ += U']';
  return absl::OkStatus();
}

absl::Status JsonWriter::AppendKey(const Value& key) {
  if (key.text() != nullptr) return Append(key);
  if (key.dict() != nullptr || key.sequence() != nullptr) {
    return absl::InvalidArgumentError("JSON has no such keys");
  }
  out_ += U'"';
  RETURN_IF_ERROR(Append(key));
  out_ += U'"';
  return absl::OkStatus();
}

absl::Status JsonWriter::AppendDict(const Dict& dict) {
  std::vector<const std::pair<Value, Value>*> entries;
  for (const auto& entry : dict.entries) entries.push_back(&entry);
  if (format_.sort_keys) {
    for (const auto* entry : entries) {
      if (entry->first.text() == nullptr) {
        return absl::UnimplementedError(
            "sorting keys that are no strings is not supported");
      }
    }
    absl::Status status;
    std::stable_sort(
        entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
          if (!status.ok()) return false;
          const absl::StatusOr<int> order = Order(a->first, b->first, budget_);
          if (!order.ok()) status = order.status();
          return order.ok() && *order < 0;
        });
    RETURN_IF_ERROR(status);
  }
  out_ += U'{';
  ++level_;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out_ += format_.item_separator;
    RETURN_IF_ERROR(NewLine());
    RETURN_IF_ERROR(AppendKey(entries[i]->first));
    out_ += format_.key_separator;
    RETURN_IF_ERROR(Append(entries[i]->second));
  }
  --level_;
  if (!entries.empty()) RETURN_IF_ERROR(NewLine());
  out_ += U'}';
  return absl::OkStatus();
}

}  // namespace

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(),
                                 value, std::chars_format::scientific)
                       .ptr;
  const std::string text(buffer.data(), end);  // "-1.25e+03"
  const size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  // Where Python changes to an exponent.
  if (exponent < -4 || exponent >= 16) return text;
  std::string sign = text[0] == '-' ? "-" : "";
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  const auto whole = static_cast<size_t>(std::max(exponent + 1, 0));
  if (exponent < 0) {
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') +
           digits;
  }
  if (digits.size() <= whole) {
    return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  }
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

absl::StatusOr<Text> ToText(const Value& value, Budget& budget) {
  if (const Text* text = value.text()) {
    RETURN_IF_ERROR(budget.Build(text->size()));
    return *text;
  }
  if (value.undefined()) return Text();
  if (value.none()) return Text(U"None");
  if (const bool* flag = value.get<bool>()) {
    return Text(*flag ? U"True" : U"False");
  }
  if (const int64_t* number = value.get<int64_t>()) {
    return FromUtf8(std::to_string(*number));
  }
  if (const double* real = value.get<double>()) {
    return FromUtf8(FloatText(*real));
  }
  if (value.sequence() == nullptr && value.dict() == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("printing a ", ToAbsl(value.type()), " is not supported"));
  }
  Text text;
  RETURN_IF_ERROR(AppendRepr(value, budget, &text));
  return text;
}

absl::StatusOr<Text> ToJson(const Value& value, const JsonFormat& format,
                            Budget& budget) {
  JsonWriter writer(format, budget);
  RETURN_IF_ERROR(writer.Append(value));
  return writer.Take();
}

absl::StatusOr<Value> ReplaceText(TextView text, TextView what, TextView with,
                                  int64_t limit, Budget& budget) {
  RETURN_IF_ERROR(budget.Scan(text.size() + what.size()));
  // Every place is 8 bytes.
  if (what.empty()) RETURN_IF_ERROR(budget.Build(2 * text.size()));
  const std::vector<size_t> places = FindAll(text, what, limit);
  RETURN_IF_ERROR(budget.Build(2 * places.size()));
  if (places.empty()) return Value::String(text);
  RETURN_IF_ERROR(budget.Build(text.size()));
  for (size_t i = 0; i < places.size(); ++i) {
    RETURN_IF_ERROR(budget.Build(with.size()));
  }
  return Value::String(ReplaceAt(text, places, what.size(), with));
}

}  // namespace reprise::jinja
