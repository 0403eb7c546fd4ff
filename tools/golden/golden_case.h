// Runs the engine on a model folder that also holds golden.safetensors, the
// outputs that another implementation computed, and compares every number.
//
//   input_ids [B, T]      logits [B, T, V]      state.L.NAME [B, ...]
//   input_ids_2 [B, T2]   logits_2 [B, T2, V]   state_2.L.NAME [B, ...]
//   greedy_ids [B, N]     continues the first segment
//   prompt_ids [1, N]     prompt_logits [V], rwkvcpp_expected_logits [V]
//
// The second segment and the greedy tokens continue from the state after the
// first; the prompt is a session of its own, its logits come from two sources.
// Whatever but the first two is missing is not compared.
#ifndef TOOLS_GOLDEN_GOLDEN_CASE_H_
#define TOOLS_GOLDEN_GOLDEN_CASE_H_

#include <cstdint>
#include <string>

#include "engine/kernels/linear.h"
#include "engine/model/load_progress.h"

namespace reprise {

// The stored numbers come from float64 runs of the same weights; a float32 run
// of the implementations they were made with differs by at most 5e-5.
inline constexpr double kGoldenLogitsTolerance = 2e-4;
// Times the largest number of the state tensor, or 1 if that is less.
inline constexpr double kGoldenStateTolerance = 1e-4;

struct GoldenResult {
  double logits_error = 0;  // largest absolute difference
  // Mean over the positions of KL(golden || ours), in nats: what is lost when
  // our logits stand for the golden ones.
  double divergence = 0;
  double state_error = 0;      // as logits_error, over all state tensors
  double state_allowance = 0;  // share of the tolerance used, at most 1 if ok
  int64_t numbers = 0;         // compared
  int64_t greedy_agreed = 0;
  int64_t greedy_total = 0;
  std::string failure;  // empty if everything is within the tolerance

  bool ok() const { return failure.empty(); }
};

// Each batch row runs as a session of its own. `progress` is that of loading.
GoldenResult RunGoldenCase(const std::string& dir, WeightType weights,
                           const LoadProgressCallback& progress = nullptr);

}  // namespace reprise

#endif  // TOOLS_GOLDEN_GOLDEN_CASE_H_
