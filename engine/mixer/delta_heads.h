// The delta rule over the heads of all sessions of a step.
#ifndef ENGINE_MIXER_DELTA_HEADS_H_
#define ENGINE_MIXER_DELTA_HEADS_H_

#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "engine/kernels/delta_kernels.h"
#include "engine/mixer/mixer.h"

namespace reprise {

// Some heads of some rows of a step, whose output has just been computed.
struct HeadTile {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t first_head = 0;
  int64_t last_head = 0;
};

// Advances every segment's state, `heads` heads at `s_offset` bytes of its
// slot, tile by tile from the segment's first row, on the team's threads.
// `step` has everything but rows, heads and state; its pointers are those of
// row 0 of the step. `finish` works on a tile's output while it is in the
// cache, from several threads.
void AdvanceDelta(const DeltaArgs& step, std::span<const Segment> segments,
                  int64_t heads, int64_t s_offset,
                  absl::FunctionRef<void(const HeadTile&)> finish);

}  // namespace reprise

#endif  // ENGINE_MIXER_DELTA_HEADS_H_
