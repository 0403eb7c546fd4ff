// What the models of fla-org/flash-linear-attention share: config fields, and
// the names and order of everything around the token mixer.
#ifndef ENGINE_MODEL_FLA_CONFIG_H_
#define ENGINE_MODEL_FLA_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/model/block_description.h"
#include "engine/model/config_reader.h"
#include "engine/model/softmax_attention_description.h"

namespace reprise {

struct FlaConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t layers = 0;
  float norm_eps = 0;
  int64_t ffn_width = 0;
  std::string ffn_fields;  // that set ffn_width
  bool tied = false;
  // One for each layer: the field 'attn' asks for softmax attention in some of
  // them (without their tensors' names), in place of the family's own mixer.
  std::vector<std::optional<SoftmaxAttentionDescription>> attention;
};

// Where families differ in what an absent field means.
struct FlaDefaults {
  double hidden_ratio = 4;
};

// Errors stay in `config`.
FlaConfig ReadFlaConfig(ConfigReader& config, const FlaDefaults& defaults = {});

// hidden_size times the number in `field` (`expand` if absent), divided among
// `heads` heads.
int64_t ReadFlaHeadDim(ConfigReader& config, const char* field,
                       int64_t hidden_size, int64_t heads, double expand = 1);

NormDescription FlaRmsNorm(std::string name, std::string fields, float eps);
LinearRef FlaLinear(std::string name, std::string fields);  // without a bias

// The whole model, with mixer(ATTN) as the token mixer of the layer whose
// tensors begin with ATTN, such as "model.layers.0.attn.", unless that layer
// has softmax attention.
ModelDescription FlaModel(
    const FlaConfig& common,
    absl::FunctionRef<MixerDescription(const std::string&)> mixer);

}  // namespace reprise

#endif  // ENGINE_MODEL_FLA_CONFIG_H_
