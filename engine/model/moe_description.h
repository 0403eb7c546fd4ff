// A feed-forward part made of many experts, of which a row visits a few. Plain
// data.
#ifndef ENGINE_MODEL_MOE_DESCRIPTION_H_
#define ENGINE_MODEL_MOE_DESCRIPTION_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/model/tensor_ref.h"

namespace reprise {

// down(silu(gate(x)) * up(x)).
struct ExpertDescription {
  LinearRef gate;
  LinearRef up;
  LinearRef down;
};

// With p = softmax(router(x)) over all experts: the sum of p_e expert_e(x) over
// the `per_row` largest, and, if there is a shared expert, sigmoid(shared_gate
// (x)) shared(x).
struct MoeFfnDescription {
  static constexpr std::string_view kKind = "moe_ffn";

  int64_t width = 0;    // of each expert
  int64_t per_row = 0;  // 1..kMaxExpertsPerRow, at most the number of experts
  bool sum_to_one = false;  // divide the chosen p by their sum
  LinearRef router;
  std::vector<ExpertDescription> experts;
  int64_t shared_width = 0;  // 0: no shared expert
  ExpertDescription shared;
  LinearRef shared_gate;  // one number a row
};

// The router's choice is kept on the stack; published models take up to 22.
inline constexpr int64_t kMaxExpertsPerRow = 64;

}  // namespace reprise

#endif  // ENGINE_MODEL_MOE_DESCRIPTION_H_
