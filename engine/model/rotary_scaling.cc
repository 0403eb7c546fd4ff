#include "engine/model/rotary_scaling.h"

#include <algorithm>

namespace reprise {

double ScaledTurns(const RotaryScaling& scaling, double turns) {
  double kept = 1;  // share of the pair that is not slowed down
  switch (scaling.kind) {
    case RotaryScalingKind::kNone:
      return turns;
    case RotaryScalingKind::kLinear:
      kept = 0;
      break;
    case RotaryScalingKind::kLlama3:
      kept =
          (scaling.original_positions * turns - scaling.low_frequency_factor) /
          (scaling.high_frequency_factor - scaling.low_frequency_factor);
      break;
  }
  kept = std::clamp(kept, 0.0, 1.0);
  return kept * turns + (1 - kept) * turns / scaling.factor;
}

}  // namespace reprise
