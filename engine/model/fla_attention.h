// Softmax attention in models of fla-org/flash-linear-attention: the whole of
// its transformer, and some layers of its hybrids.
#ifndef ENGINE_MODEL_FLA_ATTENTION_H_
#define ENGINE_MODEL_FLA_ATTENTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/block_description.h"
#include "engine/model/config_reader.h"
#include "engine/model/softmax_attention_description.h"

namespace reprise {

// For each of `layers` layers the attention that the field 'attn', an object or
// a list of them, asks for there, without the names of its tensors. Errors stay
// in `config`.
std::vector<std::optional<SoftmaxAttentionDescription>> ReadFlaHybridAttention(
    ConfigReader& config, int64_t hidden_size, int64_t layers);

// `attention` with its tensors in a layer whose names begin with `attn`, such
// as "model.layers.0.attn.".
MixerDescription NamedFlaAttention(
    const std::string& attn, const SoftmaxAttentionDescription& attention);

}  // namespace reprise

#endif  // ENGINE_MODEL_FLA_ATTENTION_H_
