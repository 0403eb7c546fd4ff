// A model put together: from its description and its weights to what the engine
// runs.
#ifndef ENGINE_MODEL_PARTS_H_
#define ENGINE_MODEL_PARTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/kernels/linear.h"
#include "engine/mixer/mixer.h"
#include "engine/mixer/row_ops.h"
#include "engine/mixer/scratch.h"
#include "engine/model/block_description.h"
#include "engine/model/weights.h"
#include "engine/state/state_layout.h"

namespace reprise {

struct Sublayer {
  NormPlacement norm_placement;
  Norm norm;
  std::unique_ptr<Mixer> mixer;
};

// What a model computes with.
struct ModelParts {
  EmbeddingTable embedding;
  std::optional<Norm> embedding_norm;
  std::vector<Sublayer> sublayers;  // of all layers, in order
  std::optional<Norm> final_norm;
  Linear head;
  StateLayout layout;
};

// Makes all parts of `model` of `weights`, which it asks for every tensor that
// the model has, and reserves what they work in in `scratch`. States have room
// for `max_context` tokens where they grow. Fails as Weights does, and with
// InvalidArgument if the state is beyond StateLayout::kMaxSlotBytes.
absl::StatusOr<ModelParts> BuildModelParts(const ModelDescription& model,
                                           int64_t max_context,
                                           Weights& weights, Scratch& scratch);

}  // namespace reprise

#endif  // ENGINE_MODEL_PARTS_H_
