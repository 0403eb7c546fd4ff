#include "server/stop_strings.h"

#include <algorithm>

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

int32_t LongestTokenAt(const Tokenizer& tokenizer, std::string_view text) {
  int32_t best = -1;
  size_t best_size = 0;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.TokenBytes(id);
    if (bytes.size() <= best_size || tokenizer.IsSpecial(id)) continue;
    if (text.substr(0, bytes.size()) != bytes) continue;
    best = id;
    best_size = bytes.size();
  }
  return best;
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> EncodeExactly(const Tokenizer& tokenizer,
                                                   std::string_view text) {
  absl::StatusOr<std::vector<int32_t>> ids =
      tokenizer.Encode(text, /*allow_special=*/false);
  if (ids.ok() && BytesAre(tokenizer, *ids, text)) return ids;
  std::vector<int32_t> exact;
  while (!text.empty()) {
    const int32_t id = LongestTokenAt(tokenizer, text);
    if (id < 0) {
      return absl::FailedPreconditionError(
          "the tokenizer has no tokens for the text before a stop string");
    }
    exact.push_back(id);
    text.remove_prefix(tokenizer.TokenBytes(id).size());
  }
  return exact;
}

}  // namespace reprise
