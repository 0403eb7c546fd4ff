#include "server/stop_strings.h"

#include <algorithm>
#include <array>

#include "absl/status/status.h"

namespace reprise {

StopScan ScanForStop(std::string_view text,
                     std::span<const std::string> stops) {
  StopScan scan{.match = std::nullopt, .undecided = text.size()};
  // 16 stops of 256 bytes at most and a text hardly longer: a plain search is
  // a few thousand comparisons of the first byte.
  for (size_t begin = 0; begin < text.size(); ++begin) {
    const std::string_view rest = text.substr(begin);
    for (size_t i = 0; i < stops.size(); ++i) {
      const std::string_view stop = stops[i];
      if (rest.substr(0, stop.size()) == stop) {
        if (!scan.match.has_value() || begin + stop.size() > scan.match->end) {
          scan.match = {.begin = begin, .end = begin + stop.size(), .stop = i};
        }
      } else if (stop.substr(0, rest.size()) == rest) {
        scan.undecided = std::min(scan.undecided, begin);
      }
    }
    if (scan.match.has_value()) break;
  }
  return scan;
}

namespace {

bool BytesAre(const Tokenizer& tokenizer, std::span<const int32_t> ids,
              std::string_view text) {
  for (int32_t id : ids) {
    const std::string_view bytes = tokenizer.TokenBytes(id);
    if (tokenizer.IsSpecial(id) || text.substr(0, bytes.size()) != bytes) {
      return false;
    }
    text.remove_prefix(bytes.size());
  }
  return text.empty();
}

// For every offset of `text` the longest token that fits there, or -1. One pass
// over the vocabulary, whatever the length of the text.
std::vector<int32_t> LongestTokens(const Tokenizer& tokenizer,
                                   std::string_view text) {
  std::array<std::vector<size_t>, 256> offsets;  // by their first byte
  for (size_t i = 0; i < text.size(); ++i) {
    offsets[static_cast<uint8_t>(text[i])].push_back(i);
  }
  std::vector<int32_t> longest(text.size(), -1);
  std::vector<size_t> sizes(text.size(), 0);
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.TokenBytes(id);
    if (bytes.empty() || tokenizer.IsSpecial(id)) continue;
    for (const size_t at : offsets[static_cast<uint8_t>(bytes[0])]) {
      if (bytes.size() <= sizes[at]) continue;
      if (text.substr(at, bytes.size()) != bytes) continue;
      longest[at] = id;
      sizes[at] = bytes.size();
    }
  }
  return longest;
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> EncodeExactly(const Tokenizer& tokenizer,
                                                   std::string_view text) {
  absl::StatusOr<std::vector<int32_t>> ids =
      tokenizer.Encode(text, /*allow_special=*/false);
  if (ids.ok() && BytesAre(tokenizer, *ids, text)) return ids;
  const std::vector<int32_t> longest = LongestTokens(tokenizer, text);
  std::vector<int32_t> exact;
  for (size_t at = 0; at < text.size();) {
    const int32_t id = longest[at];
    if (id < 0) {
      return absl::FailedPreconditionError(
          "the tokenizer has no tokens for the text before a stop string");
    }
    exact.push_back(id);
    at += tokenizer.TokenBytes(id).size();
  }
  return exact;
}

}  // namespace reprise
