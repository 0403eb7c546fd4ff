#include "engine/mixer/delta_heads.h"

#include <algorithm>

#include "engine/mixer/row_ops.h"
#include "engine/mixer/session_groups.h"

namespace reprise {
namespace {

// `step` from its row `row` on.
DeltaArgs FromRow(DeltaArgs step, int64_t row) {
  for (HeadRows* rows :
       {&step.q, &step.k, &step.v, &step.decay, &step.beta, &step.a, &step.b}) {
    if (rows->data != nullptr) rows->data += row * rows->stride;
  }
  step.o += row * step.o_stride;
  return step;
}

}  // namespace

void AdvanceDelta(const DeltaArgs& step, std::span<const Segment> segments,
                  int64_t heads, int64_t s_offset,
                  absl::FunctionRef<void(const HeadTile&)> finish) {
  int64_t rows = 0;
  for (const Segment& segment : segments) rows += segment.num_rows;
  const int64_t floats = rows * heads * step.key_dim * step.value_dim;
  ForEachSessionGroup(segments, heads, floats, [&](const SessionGroup& group) {
    const Segment& segment = group.segment;
    for (int64_t done = 0; done < segment.num_rows; done += kTileRows) {
      const HeadTile tile = {
          .first_row = segment.first_row + done,
          .num_rows = std::min(kTileRows, segment.num_rows - done),
          .first_head = group.first,
          .last_head = group.last};
      DeltaArgs args = FromRow(step, tile.first_row);
      args.rows = tile.num_rows;
      args.first_head = tile.first_head;
      args.last_head = tile.last_head;
      args.s = reinterpret_cast<float*>(segment.slot + s_offset);
      if (args.rows == 1) {
        DeltaRecurrent(args);
      } else {
        DeltaChunk(args);
      }
      finish(tile);
    }
  });
}

}  // namespace reprise
