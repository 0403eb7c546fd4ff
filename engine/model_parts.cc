#include "engine/model_parts.h"

#include <utility>

#include "engine/base/status_macros.h"
#include "engine/mixer/registry.h"

namespace reprise {
namespace {

absl::StatusOr<std::optional<Norm>> MakeOptionalNorm(
    const std::optional<NormDescription>& description, int64_t size,
    Weights& weights) {
  std::optional<Norm> norm;
  if (description) {
    ASSIGN_OR_RETURN(norm, Norm::Create(*description, size, weights));
  }
  return norm;
}

}  // namespace

absl::StatusOr<ModelParts> BuildModelParts(const ModelDescription& model,
                                           int64_t max_context,
                                           Weights& weights, Scratch& scratch) {
  StateLayout layout(max_context);
  ASSIGN_OR_RETURN(
      EmbeddingTable embedding,
      weights.Embedding(model.embedding, model.vocab_size, model.d_model));
  ASSIGN_OR_RETURN(
      std::optional<Norm> embedding_norm,
      MakeOptionalNorm(model.embedding_norm, model.d_model, weights));
  std::vector<Sublayer> sublayers;
  for (int64_t i = 0; i < std::ssize(model.layers); ++i) {
    for (const SublayerDescription& d : model.layers[static_cast<size_t>(i)]) {
      const MixerContext context{.layer = i,
                                 .d_model = model.d_model,
                                 .weights = weights,
                                 .layout = layout,
                                 .scratch = scratch};
      ASSIGN_OR_RETURN(Norm norm, Norm::Create(d.norm, model.d_model, weights));
      ASSIGN_OR_RETURN(std::unique_ptr<Mixer> mixer,
                       MakeMixer(d.mixer, context));
      RETURN_IF_ERROR(layout.status());
      sublayers.push_back(
          {d.norm_placement, std::move(norm), std::move(mixer)});
    }
  }
  ASSIGN_OR_RETURN(std::optional<Norm> final_norm,
                   MakeOptionalNorm(model.final_norm, model.d_model, weights));
  const LinearPart parts[] = {{model.head, model.vocab_size}};
  ASSIGN_OR_RETURN(Linear head, weights.MakeLinear(parts, model.d_model));
  return ModelParts{std::move(embedding), std::move(embedding_norm),
                    std::move(sublayers), std::move(final_norm),
                    std::move(head),      std::move(layout)};
}

}  // namespace reprise
