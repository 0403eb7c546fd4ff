#include "engine/mixer/decay_state.h"

#include <algorithm>

#include "engine/mixer/row_ops.h"
#include "engine/mixer/session_groups.h"

namespace reprise {
namespace {

void Skip(int64_t rows, DecayArgs& args) {
  args.q += rows * args.q_stride;
  args.k += rows * args.k_stride;
  args.v += rows * args.v_stride;
  args.o += rows * args.o_stride;
  if (args.w != nullptr) args.w += rows * args.w_stride;
  if (args.v_scale != nullptr) args.v_scale += rows * args.v_scale_stride;
}

// Some heads of one session, tile by tile from the segment's first row.
void Advance(const Segment& segment, DecayArgs args, DecayTileDone done) {
  Skip(segment.first_row, args);
  for (int64_t row = 0; row < segment.num_rows; row += kTileRows) {
    args.rows = std::min(kTileRows, segment.num_rows - row);
    if (args.rows == 1) {
      DecayRecurrent(args);
    } else {
      DecayChunk(args);
    }
    done(args, segment.first_row + row);
    Skip(args.rows, args);
  }
}

}  // namespace

DecayArgs DecayRows(MatrixView<const float> q, MatrixView<const float> k,
                    MatrixView<const float> v, MatrixView<float> o) {
  DecayArgs args;
  args.q = q.data;
  args.k = k.data;
  args.v = v.data;
  args.o = o.data;
  args.q_stride = q.stride;
  args.k_stride = k.stride;
  args.v_stride = v.stride;
  args.o_stride = o.stride;
  return args;
}

void RunDecay(const DecayStep& step, std::span<const Segment> segments,
              DecayTileDone done) {
  const int64_t state_floats =
      step.rows * step.heads * step.args.key_dim * step.args.value_dim;
  ForEachSessionGroup(
      segments, step.heads, state_floats, [&](const SessionGroup& group) {
        std::byte* slot = group.segment.slot;
        DecayArgs args = step.args;
        args.first_head = group.first;
        args.last_head = group.last;
        args.s = reinterpret_cast<float*>(slot + step.s_offset);
        if (args.normalize) {
          args.z = reinterpret_cast<float*>(slot + step.z_offset);
        }
        Advance(group.segment, args, done);
      });
}

}  // namespace reprise
