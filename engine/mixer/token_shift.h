// RWKV's token shift: every token sees its predecessor's input beside its own.
#ifndef ENGINE_MIXER_TOKEN_SHIFT_H_
#define ENGINE_MIXER_TOKEN_SHIFT_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/mixer/mixer.h"
#include "engine/mixer/registry.h"
#include "engine/tensor.h"

namespace reprise {

// Immutable after construction; Apply may run on distinct slots concurrently.
class TokenShift {
 public:
  // Adds the state field "LAYER.field" of [d_model]: the last input.
  TokenShift(std::string_view field, const MixerContext& context);

  // `difference`, [rows, d_model], becomes x_{t-1} - x_t, where the input
  // before a session's first is 0; the state advances.
  void Apply(MatrixView<const float> x, std::span<const Segment> segments,
             MatrixView<float> difference) const;

  // `out`, [rows, d_model], becomes x_t + (x_{t-1} - x_t) share, for each mix;
  // the state advances. `share` is [d_model].
  struct Mix {
    const std::vector<float>& share;
    MatrixView<float> out;
  };
  void Apply(MatrixView<const float> x, std::span<const Segment> segments,
             std::span<const Mix> mixes) const;

 private:
  // use(row, x_{t-1}) for every row; then the state advances.
  void ForRows(MatrixView<const float> x, std::span<const Segment> segments,
               int64_t floats_each,
               absl::FunctionRef<void(int64_t, const float*)> use) const;

  int64_t offset_ = 0;  // bytes, in the slot
};

}  // namespace reprise

#endif  // ENGINE_MIXER_TOKEN_SHIFT_H_
