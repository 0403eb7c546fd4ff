#include "engine/model/json_text.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/model/mapped_file.h"

namespace reprise {
namespace {

using nlohmann::json;

// A first pass that builds nothing: what it lets through can be parsed into a
// tree without deep recursion in the tree's destructor.
class Checker : public nlohmann::json_sax<json> {
 public:
  explicit Checker(int max_depth) : max_depth_(max_depth) {}

  const std::string& reason() const { return reason_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool start_array(size_t) override { return Enter(); }
  bool end_array() override { return Leave(); }
  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    reason_ = absl::StrCat("has the key ", Quoted(name), " twice");
    return false;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    reason_ = absl::StrCat("is not JSON: error at byte ", position);
    return false;
  }

 private:
  bool Enter() {
    keys_.emplace_back();
    if (static_cast<int>(keys_.size()) <= max_depth_) return true;
    reason_ = absl::StrCat("is nested deeper than ", max_depth_, " levels");
    return false;
  }
  bool Leave() {
    keys_.pop_back();
    return true;
  }

  const int max_depth_;
  std::vector<std::set<std::string>> keys_;  // of every open object
  std::string reason_;
};

// The text with quotes around each Infinity that is in no string.
std::string QuoteInfinities(std::string_view text) {
  constexpr std::string_view kWord = "Infinity";
  std::string result;
  result.reserve(text.size());
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    if (!in_string && text.substr(i).starts_with(kWord)) {
      result.append("\"").append(kWord).append("\"");
      i += kWord.size();
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
    // What a backslash escapes ends no string.
    const size_t count = text[i] == '\\' && i + 1 < text.size() ? 2 : 1;
    result.append(text.substr(i, count));
    i += count;
  }
  return result;
}

}  // namespace

absl::StatusOr<json> ParseJson(std::string_view text, std::string_view source,
                               const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToAbsl(source), " has ", text.size(),
                     " bytes, the limit is ", limits.max_bytes));
  }
  std::string quoted;
  if (limits.infinity && text.find("Infinity") != std::string_view::npos) {
    text = quoted = QuoteInfinities(text);
  }
  Checker checker(limits.max_depth);
  if (!json::sax_parse(text.begin(), text.end(), &checker)) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToAbsl(source), " ", checker.reason()));
  }
  return json::parse(text.begin(), text.end(), /*cb=*/nullptr,
                     /*allow_exceptions=*/false);
}

absl::StatusOr<json> ReadJsonObject(const std::string& path,
                                    const JsonLimits& limits) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const std::string name = std::filesystem::path(path).filename();
  ASSIGN_OR_RETURN(json value, ParseJson(file.bytes(), name, limits));
  if (!value.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " does not hold a JSON object"));
  }
  return value;
}

std::string Quoted(std::string_view text) {
  constexpr size_t kLongest = 120;
  const bool cut = text.size() > kLongest;
  size_t size = std::min(text.size(), kLongest);
  while (cut && size > 0 && (text[size] & 0xC0) == 0x80) --size;
  return absl::StrCat("'",
                      absl::Utf8SafeCHexEscape(ToAbsl(text.substr(0, size))),
                      cut ? "..." : "", "'");
}

}  // namespace reprise
