// Streams many completions from a server at once and times them, as
// `reprise bench` shows.
#ifndef CLIENT_BENCH_H_
#define CLIENT_BENCH_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client/client.h"

namespace reprise {

struct BenchOptions {
  // Stateless completions at any time, each with a prompt of so many random
  // tokens and that many new ones; one that ends is followed by the next.
  int streams = 64;
  uint32_t prompt_tokens = 16;
  uint32_t max_tokens = 0;  // 0: as many as the server allows
  // Beside them, prompts of so many tokens, of which one is answered.
  int prompts = 0;
  uint32_t long_prompt_tokens = 8192;
  // Measured time. It begins when every stream has had its first token.
  int seconds = 10;
};

struct BenchResult {
  double seconds = 0;
  uint64_t tokens = 0;        // of the streams, while it was measured
  uint64_t long_prompts = 0;  // that were answered meanwhile
  // Seconds. Between two messages of a stream, which have one token each
  // unless the network or this program is slow; from a request to its first
  // token, of the streams and of the long prompts.
  std::vector<double> gaps;
  std::vector<double> first_tokens;
  std::vector<double> long_first_tokens;
};

// Every 100 ms `on_progress` is told how many tokens have come; false ends the
// run with Cancelled. Fails as the first completion that fails.
absl::StatusOr<BenchResult> RunBench(
    Client& client, const v1::Model& model, const BenchOptions& options,
    absl::FunctionRef<bool(uint64_t tokens)> on_progress);

}  // namespace reprise

#endif  // CLIENT_BENCH_H_
