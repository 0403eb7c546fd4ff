// What stop strings need: finding them in text that comes in pieces, and
// turning the text before one into tokens again.
#ifndef SERVER_STOP_STRINGS_H_
#define SERVER_STOP_STRINGS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tokenizer.h"

namespace reprise {

struct StopMatch {
  size_t begin = 0;  // offsets in the text
  size_t end = 0;
  size_t stop = 0;  // which of the stop strings
};

struct StopScan {
  // The match that begins first, the longest of those that begin there. A
  // complete match counts even if a longer one could still become complete:
  // it would have to be waited for.
  std::optional<StopMatch> match;
  // Without a match: where the first possible beginning of one is, the size of
  // the text if there is none. Text before it is final.
  size_t undecided = 0;
};

// Looks for `stops`, none of them empty, in `text`. To scan a stream, append
// each piece to what was undecided before and scan that.
StopScan ScanForStop(std::string_view text, std::span<const std::string> stops);

// Tokens whose bytes together are exactly `text`, by Encode if it keeps every
// byte (some tokenizers add a space or normalise), else the longest fitting
// token each time. FailedPrecondition if no token has a byte that is needed.
// Takes the time of an Encode and a pass over the vocabulary: a completion
// calls it between two steps, once, with what a stop string left of one token.
absl::StatusOr<std::vector<int32_t>> EncodeExactly(const Tokenizer& tokenizer,
                                                   std::string_view text);

}  // namespace reprise

#endif  // SERVER_STOP_STRINGS_H_
