// What the engine takes for the work of a server: decoding, prefilling, long
// conversations, putting sessions away and back. Each figure stands beside the
// limit that the machine sets, measured in the same run.
#ifndef TOOLS_BENCH_ENGINE_BENCH_H_
#define TOOLS_BENCH_ENGINE_BENCH_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/model_summary.h"
#include "tools/bench/limits.h"

namespace reprise::bench {

struct BenchOptions {
  std::vector<int64_t> decode_sessions = {1, 4, 16, 64};
  std::vector<int64_t> prefill_tokens = {512, 2048};
  // Tokens consumed before the one that is timed.
  std::vector<int64_t> positions = {1000, 100'000, 1'000'000};
  int64_t context = 256;  // tokens of the sessions of the other figures
  bool suspend = true;    // suspend and resume, too
  double seconds = 1.0;   // of measuring for each figure
};

// One figure beside its limit.
struct Figure {
  std::string name;
  double value = 0;
  std::string unit;  // of "tokens/s" more is better, of all others less
  double limit = 0;  // in the same unit; 0: nothing to compare with
  std::string limited_by;
  // Bytes per second that the memory gave meanwhile; 0 if it was not asked.
  double read_speed = 0;

  // Of the limit, 1 being as good as it gets; 0 if there is none.
  double Share() const;
};

// Sessions that would not fit the memory that is left are left out, which
// stderr is told.
//
// Sessions are not fed all tokens up to a position, which would take hours:
// they consume one tile, then the position is set. A state of fixed size costs
// the same from there on, whatever it was fed. Of keys and values, which
// attention looks back on, those of the tile are repeated up to the position,
// so that a token reads as many numbers as it would. Their positions stay put
// while they are timed.
//
// The limit of a step: its weights are read once, every state is read and
// written once, keys and values are read once; and every weight is multiplied
// for every row (the head's for rows that have logits). The larger of the two
// counts. The memory's speed changes while a machine runs: it is measured in
// turn with the steps, a fifth of the time, and medians of both are compared.
// `done` gets each figure as it is there.
absl::Status RunEngineBench(Engine& engine, const TokenWork& work,
                            const MachineLimits& limits,
                            const BenchOptions& options,
                            const std::function<void(const Figure&)>& done);

// What the model says, greedily, after the token 1: for comparing one model in
// two places.
std::vector<int32_t> GreedyTokens(Engine& engine, int64_t count);

}  // namespace reprise::bench

#endif  // TOOLS_BENCH_ENGINE_BENCH_H_
