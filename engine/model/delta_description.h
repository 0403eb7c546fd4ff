// Mixers with a delta-rule state (engine/kernels/delta_kernels.h), and what
// belongs to them. Plain data.
#ifndef ENGINE_MODEL_DELTA_DESCRIPTION_H_
#define ENGINE_MODEL_DELTA_DESCRIPTION_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/short_conv_description.h"
#include "engine/model/tensor_ref.h"

namespace reprise {

enum class HeadActivation { kIdentity, kSilu, kRelu, kEluPlusOne };

// x / sqrt(sum x^2 + 1e-6), or x / sum x.
enum class HeadNorm { kL2, kSumToOne };

struct DeltaConvolution {
  std::string field;  // of the state
  ShortConvDescription conv;
};

// DeltaNet and gated DeltaNet: q, k and v of x, through short convolutions; the
// delta rule; a norm of each head's output and perhaps a gate; a matmul back.
struct DeltaNetDescription {
  static constexpr std::string_view kKind = "delta_net";

  int64_t heads = 0;      // of values, gates, outputs, and the state
  int64_t key_heads = 0;  // of queries and keys; divides heads
  int64_t key_dim = 0;    // per head
  int64_t value_dim = 0;  // per head
  LinearRef q;
  LinearRef k;
  LinearRef v;
  LinearRef o;
  // Over the columns of q | k | v, one after the other: none, or all.
  std::vector<DeltaConvolution> convolutions;
  HeadActivation qk_activation = HeadActivation::kIdentity;  // after that
  HeadActivation v_activation = HeadActivation::kIdentity;
  HeadNorm qk_norm = HeadNorm::kL2;
  float scale = 1;
  LinearRef beta;  // beta = beta_scale sigmoid(it), per head; none: beta_scale
  float beta_scale = 1;
  // decay = exp(-exp(a_log) softplus(it + dt_bias)), per head; none: 1.
  LinearRef decay;
  TensorRef a_log;
  TensorRef dt_bias;
  NormDescription output_norm;  // per head, over value_dim
  LinearRef gate;  // the normed output is multiplied by silu(it), if there
};

}  // namespace reprise

#endif  // ENGINE_MODEL_DELTA_DESCRIPTION_H_
