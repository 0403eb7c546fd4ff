// Published ways to stretch rotary positions past the length that a model was
// first trained on. Plain data, and the formulas.
#ifndef ENGINE_MODEL_ROTARY_SCALING_H_
#define ENGINE_MODEL_ROTARY_SCALING_H_

namespace reprise {

enum class RotaryScalingKind { kNone, kLinear, kLlama3 };

// With t the turns that a pair of numbers makes per token:
//  * kLinear (Chen et al. 2023): t / factor;
//  * kLlama3 (Llama 3.1; rope_type "llama3" of transformers): over the
//    original_positions the pair makes n = original_positions t turns.
//    t / factor if n < low_frequency_factor, t if n > high_frequency_factor,
//    and in between s t + (1 - s) t / factor, with s growing from 0 to 1.
struct RotaryScaling {
  RotaryScalingKind kind = RotaryScalingKind::kNone;
  double factor = 1;  // > 0
  // kLlama3 only; high_frequency_factor > low_frequency_factor.
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  double original_positions = 0;
};

// The turns per token of a pair that makes `turns` without scaling.
double ScaledTurns(const RotaryScaling& scaling, double turns);

}  // namespace reprise

#endif  // ENGINE_MODEL_ROTARY_SCALING_H_
