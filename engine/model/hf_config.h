// What models of Hugging Face's transformers that look like Llama share: config
// fields, and the names and order of everything around the token mixer.
#ifndef ENGINE_MODEL_HF_CONFIG_H_
#define ENGINE_MODEL_HF_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/model/block_description.h"
#include "engine/model/config_reader.h"
#include "engine/model/ffn_descriptions.h"
#include "engine/model/moe_description.h"

namespace reprise {

struct HfConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t layers = 0;
  float norm_eps = 0;
  bool tied = false;
  // Not in the config: how all names but the head's begin, and whether the
  // tensors of norms hold weight - 1.
  std::string prefix = "model.";
  bool norm_less_one = false;
};

// Errors stay in `config`, here and below.
HfConfig ReadHfConfig(ConfigReader& config);

// Whether layer i is of the type `special`, one of the two that the entries of
// the field 'layer_types' may be; empty if the field is absent.
std::vector<bool> ReadHfLayerTypes(ConfigReader& config, int64_t layers,
                                   std::string_view special,
                                   std::string_view other);

// A matrix BASE.weight, with BASE.bias if `bias`.
LinearRef HfLinear(const std::string& base, std::string fields, bool bias);

// An RMS norm over the `fields` numbers, as all norms of the model are.
NormDescription HfNorm(const HfConfig& common, const std::string& base,
                       std::string fields);

// The parts BASE{gate,up,down}_proj of a feed-forward part, each of a width
// that `fields` say.
ExpertDescription HfExpert(const std::string& base, const std::string& fields,
                           bool bias);
GatedFfnDescription HfFfn(const std::string& base, int64_t width, bool bias);

struct HfLayer {
  MixerDescription mixer;
  MixerDescription ffn;
};

// The whole model, of describe(i, LAYER) for every layer i, whose tensors'
// names begin with LAYER, such as "model.layers.0.".
ModelDescription HfModel(
    const HfConfig& common,
    absl::FunctionRef<HfLayer(int64_t, const std::string&)> describe);

}  // namespace reprise

#endif  // ENGINE_MODEL_HF_CONFIG_H_
