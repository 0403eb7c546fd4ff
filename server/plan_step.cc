#include "server/plan_step.h"

#include <algorithm>

#include "engine/kernels/state_kernels.h"

namespace reprise {

void PlanStep(std::span<const PlannableSequence> sequences,
              int64_t prefill_rows, int64_t max_rows,
              std::vector<PlannedSegment>& plan) {
  plan.clear();
  const int64_t count = static_cast<int64_t>(sequences.size());
  int64_t rows_left = max_rows;
  for (int64_t i = 0; i < count && rows_left > 0; ++i) {
    if (sequences[i].paused || sequences[i].prefill_tokens > 0) continue;
    plan.push_back({.sequence = i, .rows = 1});
    --rows_left;
  }
  rows_left = std::min(rows_left, std::max(prefill_rows, kTileRows));
  for (int64_t i = 0; i < count && rows_left > 0; ++i) {
    const int64_t tokens = sequences[i].prefill_tokens;
    if (sequences[i].paused || tokens == 0) continue;
    // All that is left, or as many whole tiles as there is room for: a tile is
    // cut nowhere else, or the result would depend on the load.
    const int64_t rows =
        tokens <= rows_left ? tokens : rows_left / kTileRows * kTileRows;
    if (rows == 0) continue;
    plan.push_back({.sequence = i, .rows = rows});
    rows_left -= rows;
  }
}

}  // namespace reprise
