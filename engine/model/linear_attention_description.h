// Linear attention and its feature maps. Plain data.
#ifndef ENGINE_MODEL_LINEAR_ATTENTION_DESCRIPTION_H_
#define ENGINE_MODEL_LINEAR_ATTENTION_DESCRIPTION_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "engine/model/tensor_ref.h"

namespace reprise {

// What is applied to queries and keys, d numbers per head.
enum class FeatureMap {
  kIdentity,
  kRelu,
  kEluPlusOne,
  kElementwiseProduct,  // layer1(x) * layer2(x)
  kHedgehog,            // softmax([2 y, -2 y]), y = layer1(x)
  kT2r,                 // relu(layer1(x))
  kFavor,               // exp([u, -u] - c), u = random projections of x
  kDpfp,                // u * roll(u, j) for j = 1..4, u = [relu(x), -relu(x)]
};

// The map's own layers, [d, d] each, shared by all heads.
struct FeatureLayers {
  LinearRef layer1;
  LinearRef layer2;  // kElementwiseProduct only
  // kFavor (Choromanski et al. 2021, FAVOR+), with n features: layer1 is the
  // projection, [n / 2, d], and phi(x) is
  //   exp([u, -u] - temperature |x|^2 / 2 - ln(n) / 2),
  //   u = sqrt(temperature) layer1(x)
  int64_t random_features = 0;
  float temperature = 1;
};

// Features that the map makes of d numbers.
int64_t FeatureDim(FeatureMap map, int64_t d, const FeatureLayers& layers);

// Causal linear attention: S += k v^T, o = scale q S (see
// engine/kernels/decay_kernels.h), then an output projection.
struct LinearAttentionDescription {
  static constexpr std::string_view kKind = "linear_attention";

  int64_t heads = 0;
  int64_t kv_heads = 0;   // divides heads
  int64_t key_dim = 0;    // per head, before the feature map
  int64_t value_dim = 0;  // per head
  LinearRef q;
  LinearRef k;
  LinearRef v;
  LinearRef o;
  FeatureMap feature_map = FeatureMap::kIdentity;
  FeatureLayers q_layers;
  FeatureLayers k_layers;
  bool q_sum_to_one = false;  // divide features by (their sum + 1e-4)
  bool k_sum_to_one = false;
  float scale = 1;
  bool normalize = false;  // divide by (scale q . z + epsilon)
  float epsilon = 0;
  std::optional<NormDescription> output_norm;  // per head, over value_dim
};

}  // namespace reprise

#endif  // ENGINE_MODEL_LINEAR_ATTENTION_DESCRIPTION_H_
