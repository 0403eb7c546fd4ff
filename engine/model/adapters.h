// From a family's config.json to the block description: one function for each
// family, one file for each way of naming things. model_config.cc has the
// table that chooses.
#ifndef ENGINE_MODEL_ADAPTERS_H_
#define ENGINE_MODEL_ADAPTERS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/model/block_description.h"
#include "engine/model/config_reader.h"
#include "engine/model/safetensors.h"

namespace reprise {

// Fills all of the description but the family, the special tokens and
// config_text. InvalidArgument, naming the field, for a config that is
// incomplete, contradicts itself, or asks for what this project does not have.
// The checkpoint is there for what a family's config leaves open; whether the
// tensors named exist and fit is checked later, when they are read.
using Adapter = absl::StatusOr<ModelDescription> (*)(
    ConfigReader& config, const Checkpoint& checkpoint);

// fla-org/flash-linear-attention.
absl::StatusOr<ModelDescription> DescribeFlaDeltaNet(
    ConfigReader& config, const Checkpoint& checkpoint);
absl::StatusOr<ModelDescription> DescribeFlaGatedDeltaNet(
    ConfigReader& config, const Checkpoint& checkpoint);
absl::StatusOr<ModelDescription> DescribeFlaLinearAttention(
    ConfigReader& config, const Checkpoint& checkpoint);
absl::StatusOr<ModelDescription> DescribeFlaTransformer(
    ConfigReader& config, const Checkpoint& checkpoint);
absl::StatusOr<ModelDescription> DescribeFlaGatedLinearAttention(
    ConfigReader& config, const Checkpoint& checkpoint);
absl::StatusOr<ModelDescription> DescribeFlaRetention(
    ConfigReader& config, const Checkpoint& checkpoint);

// Mamba and Mamba-2 of Hugging Face's transformers.
absl::StatusOr<ModelDescription> DescribeHfMamba(ConfigReader& config,
                                                 const Checkpoint& checkpoint);
absl::StatusOr<ModelDescription> DescribeHfMamba2(ConfigReader& config,
                                                  const Checkpoint& checkpoint);
// Either of state-spaces/mamba.
absl::StatusOr<ModelDescription> DescribeStateSpacesMamba(
    ConfigReader& config, const Checkpoint& checkpoint);

// RWKV-4 of transformers, and in the original layout of BlinkDL/RWKV-LM; RWKV-5
// in that one; RWKV-6 in that one and in fla's.
absl::StatusOr<ModelDescription> DescribeHfRwkv4(ConfigReader& config,
                                                 const Checkpoint& checkpoint);
absl::StatusOr<ModelDescription> DescribeOriginalRwkv4(
    ConfigReader& config, const Checkpoint& checkpoint);
absl::StatusOr<ModelDescription> DescribeRwkv5(ConfigReader& config,
                                               const Checkpoint& checkpoint);
absl::StatusOr<ModelDescription> DescribeRwkv6(ConfigReader& config,
                                               const Checkpoint& checkpoint);

// idiap/fast-transformers' encoder with causal linear attention, between an
// embedding and a predictor.
absl::StatusOr<ModelDescription> DescribeFastTransformers(
    ConfigReader& config, const Checkpoint& checkpoint);

// Hugging Face's LlamaForCausalLM, and those that differ from it in a detail.
absl::StatusOr<ModelDescription> DescribeLlama(ConfigReader& config,
                                               const Checkpoint& checkpoint);
absl::StatusOr<ModelDescription> DescribeMistral(ConfigReader& config,
                                                 const Checkpoint& checkpoint);
absl::StatusOr<ModelDescription> DescribeQwen2(ConfigReader& config,
                                               const Checkpoint& checkpoint);
absl::StatusOr<ModelDescription> DescribeQwen3(ConfigReader& config,
                                               const Checkpoint& checkpoint);

// Hugging Face's Qwen3-Next, and the text part of Qwen3.5, dense or with
// experts.
absl::StatusOr<ModelDescription> DescribeQwen3Next(
    ConfigReader& config, const Checkpoint& checkpoint);
absl::StatusOr<ModelDescription> DescribeQwen35(ConfigReader& config,
                                                const Checkpoint& checkpoint);
absl::StatusOr<ModelDescription> DescribeQwen35Moe(
    ConfigReader& config, const Checkpoint& checkpoint);

// RWKV-7, in fla's layout or that of BlinkDL/RWKV-LM.
absl::StatusOr<ModelDescription> DescribeRwkv7(ConfigReader& config,
                                               const Checkpoint& checkpoint);

// Far above any published model; keep products of two far from overflow.
inline constexpr int64_t kMaxVocab = int64_t{1} << 24;
inline constexpr int64_t kMaxWidth = int64_t{1} << 20;
inline constexpr int64_t kMaxLayers = 1024;
// Where a description has something for every head, which takes memory before
// any tensor can tell that there are not so many.
inline constexpr int64_t kMaxDescribedHeads = 1024;

}  // namespace reprise

#endif  // ENGINE_MODEL_ADAPTERS_H_
