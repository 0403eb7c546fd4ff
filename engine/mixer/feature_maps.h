// The maps phi that linear attention applies to queries and keys, head by head.
#ifndef ENGINE_MIXER_FEATURE_MAPS_H_
#define ENGINE_MIXER_FEATURE_MAPS_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/kernels/linear.h"
#include "engine/mixer/registry.h"
#include "engine/mixer/scratch.h"
#include "engine/model/block_description.h"
#include "engine/model/linear_attention_description.h"
#include "engine/tensor.h"

namespace reprise {

// Immutable after construction.
class FeatureMapper {
 public:
  struct Options {
    FeatureMap map = FeatureMap::kIdentity;
    bool sum_to_one = false;  // divide a head's features by (sum + 1e-4)
    int64_t heads = 0;
    int64_t dim = 0;  // per head, before the map
    // Buffers of the scratch: one to keep the result in, and two to work in.
    int64_t result_buffer = 0;
    int64_t packed_buffer = 0;
    int64_t layers_buffer = 0;
  };

  // Takes the tensors of the map's layers, if it has any, from
  // `context.weights`, and reserves the buffers. Fails as MakeMixer does.
  static absl::StatusOr<FeatureMapper> Create(const Options& options,
                                              const FeatureLayers& layers,
                                              const MixerContext& context);

  // The features of every row of x, [rows, heads * dim]: a matrix of
  // [rows, heads * feature_dim()], which is x itself for maps that work in
  // place, else the result buffer.
  MatrixView<float> Apply(MatrixView<float> x, Scratch& scratch) const;

  int64_t feature_dim() const {
    return FeatureDim(options_.map, options_.dim, favor_);
  }

 private:
  FeatureMapper(const Options& options, const FeatureLayers& layers)
      : options_(options), favor_(layers) {}
  bool in_place() const;
  MatrixView<float> ApplyLayers(MatrixView<float> x, Scratch& scratch) const;

  Options options_;
  FeatureLayers favor_;           // its numbers, for kFavor
  std::optional<Linear> layers_;  // [dim] to [dim] or [layer1 | layer2]
};

}  // namespace reprise

#endif  // ENGINE_MIXER_FEATURE_MAPS_H_
