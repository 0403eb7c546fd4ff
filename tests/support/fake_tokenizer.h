// A tokenizer with a small table of pieces: letters, overlapping groups of
// them, and single bytes of longer characters, so that stop strings begin and
// end inside tokens and characters are spread over several.
#ifndef TESTS_SUPPORT_FAKE_TOKENIZER_H_
#define TESTS_SUPPORT_FAKE_TOKENIZER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/tokenizer.h"

namespace reprise {

// Encodes greedily, longest piece first.
class FakeTokenizer : public Tokenizer {
 public:
  static constexpr int32_t kEos = 0;   // special
  static constexpr int32_t kUser = 1;  // special

  FakeTokenizer()
      : FakeTokenizer({"<eos>", "<user>", "a",    "b",    "c",    "d",
                       " ",     "\n",     "ab",   "ba",   "abc",  "bcd",
                       "aab",   "cd ",    "d\na", "dab",  "cc",   "e",
                       "\xC3",  "\xA9",   "\xE2", "\x82", "\xAC", "\xEF",
                       "\xBF",  "\xBD",   "ea",   "be",   "aa",   "\na",
                       "\n\n",  "b c"}) {}
  // The first two are special.
  explicit FakeTokenizer(std::vector<std::string> pieces)
      : pieces_(std::move(pieces)) {}

  absl::StatusOr<std::vector<int32_t>> EncodeUpTo(
      std::string_view text, bool allow_special,
      size_t max_tokens) const override {
    std::vector<int32_t> ids;
    while (!text.empty()) {
      if (ids.size() == max_tokens) return TooManyTokensError(max_tokens);
      int32_t best = -1;
      for (int32_t id = allow_special ? 0 : 2; id < vocab_size(); ++id) {
        if (text.substr(0, pieces_[id].size()) != pieces_[id]) continue;
        if (best < 0 || pieces_[id].size() > pieces_[best].size()) best = id;
      }
      if (best < 0) return absl::InvalidArgumentError("no piece fits");
      ids.push_back(best);
      text.remove_prefix(pieces_[best].size());
    }
    return ids;
  }

  std::string_view TokenBytes(int32_t id) const override { return pieces_[id]; }
  bool IsSpecial(int32_t id) const override { return id < 2; }
  int64_t vocab_size() const override {
    return static_cast<int64_t>(pieces_.size());
  }
  std::optional<int32_t> FindToken(std::string_view name) const override {
    for (int32_t id = 0; id < vocab_size(); ++id) {
      if (pieces_[id] == name) return id;
    }
    return std::nullopt;
  }
  uint64_t fingerprint() const override { return 1; }
  std::string_view kind() const override { return "fake"; }
  DecodingRules decoding_rules() const override { return rules; }

  DecodingRules rules;

 private:
  std::vector<std::string> pieces_;
};

}  // namespace reprise

#endif  // TESTS_SUPPORT_FAKE_TOKENIZER_H_
