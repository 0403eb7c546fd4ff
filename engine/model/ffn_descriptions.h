// Feed-forward parts. Plain data.
#ifndef ENGINE_MODEL_FFN_DESCRIPTIONS_H_
#define ENGINE_MODEL_FFN_DESCRIPTIONS_H_

#include <cstdint>
#include <string_view>

#include "engine/model/activation.h"
#include "engine/model/tensor_ref.h"

namespace reprise {

// down(silu(gate(x)) * up(x)).
struct GatedFfnDescription {
  static constexpr std::string_view kKind = "gated_ffn";

  int64_t width = 0;
  LinearRef gate;
  LinearRef up;
  LinearRef down;
};

// down(activation(up(x))).
struct PlainFfnDescription {
  static constexpr std::string_view kKind = "plain_ffn";

  int64_t width = 0;
  Activation activation = Activation::kRelu;
  LinearRef up;
  LinearRef down;
};

}  // namespace reprise

#endif  // ENGINE_MODEL_FFN_DESCRIPTIONS_H_
