// Softmax attention in models of Hugging Face's transformers.
#ifndef ENGINE_MODEL_HF_ATTENTION_H_
#define ENGINE_MODEL_HF_ATTENTION_H_

#include <cstdint>
#include <string>

#include "engine/model/block_description.h"
#include "engine/model/config_reader.h"
#include "engine/model/hf_config.h"
#include "engine/model/softmax_attention_description.h"

namespace reprise {

// Where families differ in what an absent field means.
struct HfAttentionDefaults {
  int64_t head_dim = 0;  // 0: hidden_size / num_attention_heads
  double rotary_fraction = 1;
};

// The part of a layer's attention that is the same in every layer, without the
// names of its tensors. Errors stay in `config`.
SoftmaxAttentionDescription ReadHfAttention(
    ConfigReader& config, const HfConfig& common,
    const HfAttentionDefaults& defaults = {});

struct HfAttentionParts {
  bool qkv_bias = false;
  bool o_bias = false;
  bool qk_norm = false;
};

// `attention` with its tensors in a layer whose names begin with `attn`, such
// as "model.layers.0.self_attn.".
SoftmaxAttentionDescription NamedHfAttention(
    const HfConfig& common, const std::string& attn,
    const HfAttentionParts& parts,
    const SoftmaxAttentionDescription& attention);

}  // namespace reprise

#endif  // ENGINE_MODEL_HF_ATTENTION_H_
