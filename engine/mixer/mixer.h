// What a layer does to rows: the interface of token mixers and feed-forward
// parts. One .cc file implements one; registry.cc lists them.
#ifndef ENGINE_MIXER_MIXER_H_
#define ENGINE_MIXER_MIXER_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/mixer/scratch.h"
#include "engine/tensor.h"

namespace reprise {

// Consecutive tokens of one session inside a step: one row when decoding, a
// tile or several when prefilling. A step's segments are in the order of their
// rows and leave no row out.
struct Segment {
  int64_t first_row = 0;      // index into the rows of x and y
  int64_t num_rows = 0;       // >= 1
  int64_t position = 0;       // tokens this session consumed before this step
  std::byte* slot = nullptr;  // start of the session's state slot
};

// Immutable after construction. Forward may run on any thread, on distinct
// slots concurrently.
class Mixer {
 public:
  virtual ~Mixer() = default;

  // Computes y for every row of x, [rows, d_model] each, advancing each
  // segment's state in place. x and y do not overlap. Promises the scheduler
  // relies on, checked for every registered mixer by mixer_conformance_test:
  //  * a zero-filled slot is a new session;
  //  * splitting a segment at a multiple of kTileRows rows gives the same y
  //    and state, bit for bit; elsewhere, to rounding;
  //  * a segment's result does not depend on what else is in the step.
  virtual void Forward(MatrixView<const float> x,
                       std::span<const Segment> segments, Scratch& scratch,
                       MatrixView<float> y) const = 0;
};

}  // namespace reprise

#endif  // ENGINE_MIXER_MIXER_H_
