// What the ways to write a snapshot cost and change, for one model.
#ifndef TOOLS_SNAPSHOTS_MEASURE_H_
#define TOOLS_SNAPSHOTS_MEASURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/state/snapshot.h"

namespace reprise::snapshots {

struct MeasureOptions {
  // Where in the text conversations begin, evenly spaced; each is measured.
  int64_t places = 8;
  int64_t prompt_tokens = 512;  // before the first snapshot; whole tiles
  int64_t turns = 8;            // each ends in a snapshot
  int64_t turn_tokens = 64;     // whole tiles
  double seconds = 0.3;         // of timing each way once more and more
  // What rounds the states of the turns; kF32 shows that all else is exact.
  StateEncoding elements = StateEncoding::kBf16;
};

// One way to write the state after the prompt.
struct EncodingCost {
  std::string name;           // "f32", "bf16+zstd"
  double bytes = 0;           // mean over the places
  double encode_seconds = 0;  // medians at the last place
  double decode_seconds = 0;
};

// The text read on, turn after turn, from states that were written and read as
// `MeasureOptions::elements` before every turn, beside the same from states
// that were not.
struct TurnEffect {
  double mean_divergence = 0;  // KL(exact || written) of a token, in nats
  double max_divergence = 0;
  double agreement = 0;   // share of tokens whose likeliest is the same
  double exact_loss = 0;  // nats for each token of the text
  double written_loss = 0;
};

struct Measurements {
  std::vector<EncodingCost> encodings;
  std::vector<TurnEffect> turns;
  // Of turn_tokens greedy tokens after the prompt, from both kinds of state:
  // how many are equal up to the first that is not, over all places; and at how
  // many places all are.
  int64_t greedy_equal = 0;
  int64_t greedy_tokens = 0;
  int64_t greedy_places = 0;
};

// InvalidArgument if the text is too short or the model's steps are too small.
absl::StatusOr<Measurements> Measure(Engine& engine,
                                     const std::vector<int32_t>& text,
                                     const MeasureOptions& options);

}  // namespace reprise::snapshots

#endif  // TOOLS_SNAPSHOTS_MEASURE_H_
