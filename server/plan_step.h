// Which rows make the next step. A function of numbers, apart from everything
// that moves, so that a table can test it.
#ifndef SERVER_PLAN_STEP_H_
#define SERVER_PLAN_STEP_H_

#include <cstdint>
#include <span>
#include <vector>

namespace reprise {

// What the planner knows of a sequence.
struct PlannableSequence {
  int64_t prefill_tokens = 0;  // still to be prefilled; 0 = decoding
  bool paused = false;         // its stream is full
};

// Rows of one sequence in the next step.
struct PlannedSegment {
  int64_t sequence = 0;  // index
  int64_t rows = 0;
};

// Writes the next step to `plan`: one row for every decoding sequence that is
// not paused, then prefill rows, first come first served, in whole tiles (or a
// last partial one) up to `prefill_rows` in all; at least one tile if any
// sequence prefills and `max_rows` leaves room for it. Depends on nothing else.
void PlanStep(std::span<const PlannableSequence> sequences,
              int64_t prefill_rows, int64_t max_rows,
              std::vector<PlannedSegment>& plan);

}  // namespace reprise

#endif  // SERVER_PLAN_STEP_H_
