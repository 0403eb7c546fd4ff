// Runs the decay kernels over all sessions and heads of a step: the part that
// mixers of the decay family have in common.
#ifndef ENGINE_MIXER_DECAY_STATE_H_
#define ENGINE_MIXER_DECAY_STATE_H_

#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "engine/kernels/decay_kernels.h"
#include "engine/mixer/mixer.h"
#include "engine/tensor.h"

namespace reprise {

// The rows of queries, keys, values and outputs; the rest as it is by default.
DecayArgs DecayRows(MatrixView<const float> q, MatrixView<const float> k,
                    MatrixView<const float> v, MatrixView<float> o);

struct DecayStep {
  // Pointers at the step's first row; rows, heads and state are filled in.
  DecayArgs args;
  int64_t rows = 0;  // of all segments
  int64_t heads = 0;
  int64_t s_offset = 0;  // bytes, in the slots
  int64_t z_offset = 0;  // if args.normalize
};

// The rows of one segment's tile and the heads that were just computed. `args`
// has their pointers, `first_row` is the tile's first row in the step.
using DecayTileDone =
    absl::FunctionRef<void(const DecayArgs& args, int64_t first_row)>;

// Advances every segment's state tile by tile from its first row, on the
// team's threads; a tile of one row takes the recurrent form. Calls `done`
// after every tile and group of heads, while the output is in the cache.
void RunDecay(const DecayStep& step, std::span<const Segment> segments,
              DecayTileDone done);

}  // namespace reprise

#endif  // ENGINE_MIXER_DECAY_STATE_H_
