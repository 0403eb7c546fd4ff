// What a model is made of, in one form for all families: adapters fill it from
// a config.json, mixers and the engine build from it. Plain data.
//
//   x = embedding[token], normed if there is an embedding_norm
//   for every layer, for every sublayer:
//     before:  x = x + mixer(norm(x))     after:  x = norm(x + mixer(x))
//   logits = head(final_norm(x))
//
// "Mixer" covers token mixers, which have state, and feed-forward parts, which
// need none: both turn rows into rows.
#ifndef ENGINE_MODEL_BLOCK_DESCRIPTION_H_
#define ENGINE_MODEL_BLOCK_DESCRIPTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/model/activation.h"
#include "engine/model/decay_descriptions.h"
#include "engine/model/delta_description.h"
#include "engine/model/mamba_descriptions.h"
#include "engine/model/moe_description.h"
#include "engine/model/rwkv7_description.h"
#include "engine/model/rwkv_descriptions.h"
#include "engine/model/softmax_attention_description.h"
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

// One alternative for each row of the table in engine/mixer/registry.cc.
using MixerDescription =
    std::variant<DeltaNetDescription, GatedFfnDescription,
                 GatedLinearAttentionDescription, LinearAttentionDescription,
                 MambaDescription, Mamba2Description, MoeFfnDescription,
                 PlainFfnDescription, RetentionDescription,
                 Rwkv4TimeMixDescription, Rwkv7Description, Rwkv7FfnDescription,
                 RwkvChannelMixDescription, RwkvTimeMixDescription,
                 SoftmaxAttentionDescription>;

// The kKind of the alternative it holds.
std::string_view MixerKind(const MixerDescription& mixer);

enum class NormPlacement { kBefore, kAfter };

struct SublayerDescription {
  NormPlacement norm_placement = NormPlacement::kBefore;
  NormDescription norm;
  MixerDescription mixer;
};

struct ModelDescription {
  std::string family;  // config.json's model_type
  int64_t vocab_size = 0;
  int64_t d_model = 0;
  TensorRef embedding;  // [vocab_size, d_model]
  std::optional<NormDescription> embedding_norm;
  LinearRef head;  // the weight is the embedding's where they are tied
  std::optional<NormDescription> final_norm;
  std::vector<std::vector<SublayerDescription>> layers;
  // Longest text that the model was made for, where the config says so.
  std::optional<int64_t> max_positions;
  std::vector<int32_t> eos_tokens;
  std::optional<int32_t> bos_token;
  // Tensors whose names begin so belong to parts that text needs none of.
  std::vector<std::string> ignored_prefixes;
  // Every config field that shaped the above, with its value: part of the
  // model's fingerprint.
  std::string config_text;
};

}  // namespace reprise

#endif  // ENGINE_MODEL_BLOCK_DESCRIPTION_H_
