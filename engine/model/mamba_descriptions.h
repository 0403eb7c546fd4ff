// Descriptions of the Mamba mixers.
#ifndef ENGINE_MODEL_MAMBA_DESCRIPTIONS_H_
#define ENGINE_MODEL_MAMBA_DESCRIPTIONS_H_

#include <cstdint>
#include <string_view>

#include "engine/model/short_conv_description.h"
#include "engine/model/tensor_ref.h"

namespace reprise {

// The selective scan (Gu and Dao 2023), channel by channel, with a state of N
// numbers each:
//
//   [x, z] = in(rows)   x = conv(x)   [r, B, C] = x_proj(x)
//   dt = softplus(dt_proj(r))
//   h = exp(dt A) h + dt B x   y = out((C . h + D x) silu(z))   A = -exp(a_log)
struct MambaDescription {
  static constexpr std::string_view kKind = "mamba";

  int64_t inner = 0;  // channels
  int64_t state_size = 0;
  int64_t dt_rank = 0;
  LinearRef in;  // [x | z], inner each
  ShortConvDescription conv;
  LinearRef x_proj;   // [dt_rank | state_size | state_size]
  LinearRef dt_proj;  // [inner, dt_rank]
  TensorRef a_log;    // [inner, state_size]
  TensorRef d;        // [inner]
  LinearRef out;
};

// State space duality (Dao and Gu 2024): heads of P channels, one decay each,
// B and C shared by the heads of a group.
//
//   [z, x, B, C, dt] = in(rows)   [x, B, C] = conv([x, B, C])
//   dt = clamp(softplus(dt + dt_bias))
//   S = exp(dt A) S + B (dt x)^T   y = out(norm((S^T C + D x) silu(z)))
struct Mamba2Description {
  static constexpr std::string_view kKind = "mamba2";

  int64_t heads = 0;
  int64_t head_dim = 0;    // P
  int64_t state_size = 0;  // N
  int64_t groups = 0;      // divides heads
  LinearRef in;
  ShortConvDescription conv;
  TensorRef a_log;    // [heads]
  TensorRef d;        // [heads]
  TensorRef dt_bias;  // [heads]
  float dt_min = 0;
  float dt_max = 0;
  // RMS norm over inner / norm_groups numbers each.
  TensorRef norm_weight;  // [inner]
  float norm_eps = 0;
  int64_t norm_groups = 1;
  LinearRef out;

  int64_t inner() const { return heads * head_dim; }
};

}  // namespace reprise

#endif  // ENGINE_MODEL_MAMBA_DESCRIPTIONS_H_
