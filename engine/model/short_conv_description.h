// The short causal convolution that several mixers begin with.
#ifndef ENGINE_MODEL_SHORT_CONV_DESCRIPTION_H_
#define ENGINE_MODEL_SHORT_CONV_DESCRIPTION_H_

#include <cstdint>

#include "engine/model/tensor_ref.h"

namespace reprise {

struct ShortConvDescription {
  int64_t channels = 0;
  int64_t taps = 0;  // 1..kMaxConvTaps
  TensorRef weight;  // [channels, 1, taps], the last tap is the current token
  TensorRef bias;    // [channels]; none: zeros
  bool silu = true;  // of the result
};

}  // namespace reprise

#endif  // ENGINE_MODEL_SHORT_CONV_DESCRIPTION_H_
