// Streams many completions from a server at once and times them, as
// `reprise bench` shows.
#ifndef CLIENT_BENCH_H_
#define CLIENT_BENCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client/client.h"

namespace reprise {

struct BenchOptions {
  // Stateless completions at any time, each with a prompt of so many random
  // tokens and that many new ones; one that ends is followed by the next.
  int streams = 32;
  uint32_t prompt_tokens = 16;
  uint32_t max_tokens = 0;  // 0: as many as the server allows
  // Beside them, prompts of so many tokens, of which one is answered.
  int prompts = 0;
  uint32_t long_prompt_tokens = 8192;
  // Measured time. It begins when every stream has had its first token.
  int seconds = 10;
};

// What came while it was measured; times are in seconds.
struct BenchResult {
  double seconds = 0;
  uint64_t tokens = 0;        // of the streams
  uint64_t long_prompts = 0;  // answered
  // Between two messages of a stream, which have one token each unless the
  // network or this program is slow.
  std::vector<double> gaps;
  // From a request to its first token, of the long prompts.
  std::vector<double> long_first_tokens;
  // From a request to its first token, of the streams, from the beginning.
  std::vector<double> first_tokens;
};

// Seconds. Of so many times half are at most `median` and 99 of 100 at most
// `p99`; all are 0 if there are none.
struct TimeSpread {
  size_t count = 0;
  double median = 0;
  double p99 = 0;
  double longest = 0;
};
TimeSpread SpreadOf(std::vector<double> seconds);

struct BenchCallbacks {
  // The measured time begins, or ends.
  absl::FunctionRef<void(bool end)> on_measured;
  // So many tokens have come. Called every 100 ms; false ends the run with
  // Cancelled.
  absl::FunctionRef<bool(uint64_t tokens)> on_progress;
};

// Blocks until it is over; the callbacks are called on its thread.
// InvalidArgument, naming the option, if the server does not run so much at
// once; FailedPrecondition if it answers without a token; else fails as the
// first completion that fails.
absl::StatusOr<BenchResult> RunBench(Client& client, const v1::Model& model,
                                     const BenchOptions& options,
                                     const BenchCallbacks& callbacks);

}  // namespace reprise

#endif  // CLIENT_BENCH_H_
