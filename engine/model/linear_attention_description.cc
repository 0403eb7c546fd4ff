#include "engine/model/linear_attention_description.h"

namespace reprise {

int64_t FeatureDim(FeatureMap map, int64_t d, const FeatureLayers& layers) {
  switch (map) {
    case FeatureMap::kHedgehog:
      return 2 * d;
    case FeatureMap::kFavor:
      return layers.random_features;
    case FeatureMap::kDpfp:
      return 8 * d;
    default:
      return d;
  }
}

}  // namespace reprise
