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
#include <vector>

#include "engine/model/mixer_description.h"
#include "engine/model/tensor_ref.h"

namespace reprise {

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
