// What stop strings do to a completion, by searching all of its text after
// every token.
#ifndef TESTS_SUPPORT_REFERENCE_STOP_H_
#define TESTS_SUPPORT_REFERENCE_STOP_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/tokenizer.h"
#include "server/turn_request.h"

namespace reprise {

struct ReferenceStop {
  bool found = false;
  std::string stop;
  std::string text;             // shown in the end
  size_t tokens = 0;            // sampled until it was found
  std::vector<int32_t> kept;    // tokens that end in `text`, and whole
  std::string rest;             // of `text`, after them
  bool between_tokens = false;  // there is no rest
};

// The position of the first stop string in `text` from `from` on, npos if there
// is none; the longest of those at that place goes to `stop`.
inline size_t FindStop(const std::string& text, size_t from,
                       std::span<const std::string> stops, std::string& stop) {
  size_t begin = std::string::npos;
  for (const std::string& candidate : stops) {
    const size_t at = text.find(candidate, from);
    if (at == std::string::npos || at > begin) continue;
    if (at == begin && candidate.size() <= stop.size()) continue;
    begin = at;
    stop = candidate;
  }
  return begin;
}

// The text of a completion, end tokens aside. `pending_text` is what the
// session's last turn left of an unfinished character, and what this one does.
inline std::string ReferenceText(const Tokenizer& tokenizer,
                                 const TurnRequest& request,
                                 std::span<const int32_t> output,
                                 std::string& pending_text) {
  StreamDecoder decoder(tokenizer, request.prompt.empty() ? pending_text : "");
  std::string text;
  for (int32_t token : output) {
    const auto is = [token](int32_t other) { return other == token; };
    if (std::ranges::none_of(request.eos_tokens, is) &&
        std::ranges::none_of(request.stop_tokens, is)) {
      text += decoder.Push(token);
    }
  }
  pending_text = decoder.pending();
  return text;
}

// `output` is the completion without stop strings.
inline ReferenceStop ReferenceCut(const Tokenizer& tokenizer,
                                  const TurnRequest& request,
                                  std::span<const int32_t> output,
                                  const std::string& pending_text = "") {
  ReferenceStop cut;
  std::string all;
  StreamDecoder decoder(tokenizer, request.prompt.empty() ? pending_text : "");
  size_t from = 0;
  std::vector<size_t> ends;  // of tokens; npos inside a character
  for (size_t i = 0; i < output.size(); ++i) {
    const int64_t count = static_cast<int64_t>(i + 1);
    if (count <= request.min_new_tokens) from = all.size();
    const auto is = [&](int32_t token) { return token == output[i]; };
    if (std::ranges::any_of(request.eos_tokens, is) ||
        std::ranges::any_of(request.stop_tokens, is)) {
      break;
    }
    all += decoder.Push(output[i]);
    ends.push_back(decoder.pending().empty() ? all.size() : std::string::npos);
    if (count < request.min_new_tokens) continue;
    const size_t begin = FindStop(all, from, request.stop, cut.stop);
    if (begin == std::string::npos) continue;
    cut.found = true;
    cut.tokens = i + 1;
    cut.text =
        all.substr(0, begin + (request.include_stop ? cut.stop.size() : 0));
    size_t kept_end = 0;
    for (size_t k = 0; k <= i; ++k) {
      if (ends[k] == std::string::npos || ends[k] > cut.text.size()) continue;
      cut.kept.assign(output.begin(),
                      output.begin() + static_cast<std::ptrdiff_t>(k + 1));
      kept_end = ends[k];
    }
    cut.rest = cut.text.substr(kept_end);
    cut.between_tokens = cut.rest.empty();
    return cut;
  }
  cut.text = all;
  cut.tokens = output.size();
  return cut;
}

}  // namespace reprise

#endif  // TESTS_SUPPORT_REFERENCE_STOP_H_
